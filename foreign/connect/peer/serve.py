"""A Python server of two operations, create a run and wait for it, with an agent `echo`: the peer of a benchmark.

    python serve.py PORT [quick]

Plain as `pip install fastapi uvicorn` installs it, or quick: with an event loop and an HTTP parser in C.
"""

import asyncio
import sys
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel


class RunCreate(BaseModel):
    agent_id: str | None = None
    input: Any = None
    metadata: dict[str, Any] | None = None
    on_completion: str = "delete"
    on_disconnect: str = "cancel"
    multitask_strategy: str = "reject"


class Run(BaseModel):
    run_id: str
    agent_id: str
    created_at: datetime
    updated_at: datetime
    status: str
    creation: RunCreate


class Output(BaseModel):
    type: str
    values: Any


class Answer(BaseModel):
    run: Run
    output: Output


app = FastAPI()
runs: dict[str, tuple[Run, asyncio.Task[Output]]] = {}


async def echo(run: Run) -> Output:
    output = Output(type="result", values=run.creation.input)
    run.status, run.updated_at = "success", datetime.now(timezone.utc)
    return output


@app.get("/ping")
async def ping() -> dict[str, str]:
    return {}


@app.post("/runs", response_model_exclude_none=True)
async def create(creation: RunCreate) -> Run:
    now = datetime.now(timezone.utc)
    run = Run(
        run_id=str(uuid4()), agent_id="echo", created_at=now, updated_at=now, status="pending", creation=creation
    )
    runs[run.run_id] = (run, asyncio.create_task(echo(run)))
    return run


@app.get("/runs/{run_id}/wait", response_model_exclude_none=True)
async def wait(run_id: str) -> Answer:
    if run_id not in runs:
        raise HTTPException(404, "there is no such run")
    run, task = runs[run_id]
    return Answer(run=run, output=await task)


if __name__ == "__main__":
    quick = sys.argv[2:] == ["quick"]
    loop, http = ("uvloop", "httptools") if quick else ("asyncio", "h11")
    uvicorn.run(app, port=int(sys.argv[1]), loop=loop, http=http, access_log=False, log_level="warning")
