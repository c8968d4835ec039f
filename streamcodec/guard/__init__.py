"""The guard: a proxy that checks requests of the V2 protocol while it passes them on, for servers that do not.

A request is checked by the same rules as by the server of this package. One that breaks a rule is answered here, and
the server behind does not see it. What is no inference passes only if it is known to be harmless, or allowed. Tensors
of any size pass through constant memory. `link`, `upstream` and `guarding` wait for sockets, and `relay` is called by
them; the other modules know none.
"""

from streamcodec.guard.guarding import ANSWER_TIMEOUT, GUARD_LIMITS, Guard
from streamcodec.guard.rules.allowing import ALLOWANCES

__all__ = ["ALLOWANCES", "ANSWER_TIMEOUT", "GUARD_LIMITS", "Guard"]
