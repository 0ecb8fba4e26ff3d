"""One FastAPI route as people write them: a validated query parameter, a model out, JSON."""

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Greeting(BaseModel):
    name: str
    times: int
    words: list[str]


@app.get("/greet")
async def greet(name: str = "World", times: int = 3) -> Greeting:
    return Greeting(name=name, times=times, words=["hello"] * times)
