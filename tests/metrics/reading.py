"""Reading: what `/metrics` says, by the parser of `prometheus_client`."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.server.wire import Answer, Wire, head

GET_METRICS = head("/metrics", method="GET")


class Samples:
    """The samples of a page."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}

    def values(self, label: str) -> set[str]:
        """Return all values of a label."""
        return {sample.labels[label] for sample in self.samples if label in sample.labels}

    def sum(self, name: str, **labels: str) -> float:
        """Add all samples with these labels; there is at least one."""
        found = [each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()]
        assert found, (name, labels)
        return sum(found)


def ask(wire: Wire) -> Answer:
    """Ask for the page."""
    answer = wire.send(GET_METRICS).response()
    assert answer.status == 200
    return answer


def scrape(wire: Wire) -> Samples:
    """Ask for the page, and read it."""
    return Samples(ask(wire).body.decode())
