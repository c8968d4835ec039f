"""demo"""

from streamcodec.cli.arguments import Commands


def add_parser(commands: Commands) -> None: ...
