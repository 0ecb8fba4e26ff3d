"""Is there, but imports what is not: the fault is inside, and must not be reported as "no module broken_dependency"."""

import a_module_that_is_not_there  # noqa: F401
