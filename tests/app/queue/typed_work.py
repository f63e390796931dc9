"""Tasks with types that JSON does not have, for the tests of a worker."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from detent import Detent

app = Detent("typed", store=os.environ["TYPED_STORE"])


@dataclass
class Invoice:
    number: int
    total: Decimal


@app.task(keep_result=True)
def due(invoice: Invoice, since: datetime, fire=None, days: timedelta | None = None) -> datetime:  # type: ignore[no-untyped-def]
    assert isinstance(invoice.total, Decimal)
    return since + (days or timedelta(days=invoice.number))
