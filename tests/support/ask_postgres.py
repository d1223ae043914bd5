"""Asks the PostgreSQL server of the tests something, on a connection of its own."""

import asyncio

import asyncpg


def ask(dsn: str, query: str) -> list[asyncpg.Record]:
    async def run() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(query)
        finally:
            await connection.close()

    return asyncio.run(run())
