"""The workflow that `stepwell demo` executes: each step leaves a line in a file when it begins."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from stepwell.sdk.workflow import workflow

LOG, DOOR = "executions.log", "door-is-open"


def begin(folder: str, step: str) -> None:
    """Count an execution where no database can take it back."""
    with Path(folder, LOG).open("a", encoding="utf-8") as log:
        log.write(f"{step}\n")


def reserve_stock(folder: str) -> dict[str, int]:
    begin(folder, "reserve-stock")
    return {"reservation": 7}


def charge_card(folder: str) -> dict[str, int]:
    """Talks to a slow service: it answers once the demo lets it."""
    begin(folder, "charge-card")
    while not Path(folder, DOOR).exists():
        time.sleep(0.01)
    return {"receipt": 42}


def send_receipt(folder: str, receipt: int) -> str:
    begin(folder, "send-receipt")
    return f"receipt {receipt} sent"


@workflow(name="demo-order")
async def order(ctx: Any, input: Any) -> Any:
    """Reserve, wait a moment, charge, send a receipt."""
    folder = input["folder"]
    reserved = await ctx.step("reserve-stock", reserve_stock, folder)
    await ctx.sleep("let-it-settle", "200ms")
    charged = await ctx.step("charge-card", charge_card, folder)
    sent = await ctx.step("send-receipt", send_receipt, folder, charged["receipt"])
    return {**reserved, **charged, "mail": sent}
