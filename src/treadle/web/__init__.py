"""Mission Control: the dashboard, the HTTP API, and who may use them.

from treadle.web import Access, Dashboard

api.mount("/jobs", Dashboard(app, access=lambda request: Access("ann", "operator")))
"""

from __future__ import annotations

from .access import Access
from .dashboard import Dashboard

__all__ = ["Access", "Dashboard"]
