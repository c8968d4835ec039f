"""The guard: a proxy that checks requests of the V2 protocol while it passes them on, for servers that do not.

A request is checked by the same rules as by the server of this package. One that breaks a rule is answered here, and
the server behind does not see it. Tensors of any size pass through constant memory. `fields`, `routing`, `contents`,
`pieces`, `screening`, `crossing`, `whole`, `answers` and `recording` know no sockets; `link`, `upstream` and `guarding`
wait for them, and `relay` is called by them.
"""

from streamcodec.guard.guarding import ANSWER_TIMEOUT, GUARD_LIMITS, Guard

__all__ = ["ANSWER_TIMEOUT", "GUARD_LIMITS", "Guard"]
