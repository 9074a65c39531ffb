"""Importing this hides pandas. pyarrow looks for it when it makes its first array, and where it is there imports it:
half a second in each process, for nothing. Only Spark needs it."""

import sys

sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
