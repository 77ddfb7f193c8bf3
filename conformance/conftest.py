"""The one fixture that the shipped tests of the Python client take from outside: a client."""

import os

import pytest_asyncio
from queen import Queen


@pytest_asyncio.fixture
async def client():
    queen = Queen(os.environ["QUEEN_SERVER_URL"])
    yield queen
    await queen.close()
