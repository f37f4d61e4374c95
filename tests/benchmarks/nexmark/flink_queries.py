"""The queries of `queries` in Flink's SQL, with the same columns. Imports no engine.

A window's rows and the rows of a rank are ordered by as many columns as it takes to have one
answer, whatever the order in which the events come.
"""

from __future__ import annotations

EVENTS = """
    CREATE TABLE events (
        event_type INT,
        person ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING,
            state STRING, extra STRING>,
        auction ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT,
            reserve BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra STRING>,
        bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,
            extra STRING>,
        `dateTime` TIMESTAMP_LTZ(3),
        WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')
"""

KINDS = {
    "persons": ("person", 0, "id name emailAddress creditCard city state"),
    "auctions": (
        "auction",
        1,
        "id itemName description initialBid reserve expires seller category",
    ),
    "bids": ("bid", 2, "auction bidder price channel url"),
}


def views() -> list[str]:
    """Statements for a view of each kind of event."""
    statements = []
    for view, (column, kind, fields) in KINDS.items():
        columns = ", ".join(f"{column}.`{field}` AS `{field}`" for field in fields.split())
        statements.append(
            f"CREATE TEMPORARY VIEW {view} AS "
            f"SELECT {columns}, `dateTime` FROM events WHERE event_type = {kind}"
        )
    return statements


RANKS = {
    "low": "price < 10000",
    "middle": "price >= 10000 AND price < 1000000",
    "high": "price >= 1000000",
}
DAY = "DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')"


def _by_rank(counted: str, name: str) -> str:
    """A count, and the same count for each rank of price."""
    prefixes = {rank: rank if name == "bids" else f"{rank}_{name}" for rank in RANKS}
    of_ranks = (
        f"{counted} FILTER (WHERE {condition}) AS `{prefixes[rank]}`"
        for rank, condition in RANKS.items()
    )
    return ", ".join((f"{counted} AS {name}", *of_ranks))


_DISTINCT = ", ".join(
    (
        _by_rank("COUNT(*)", "bids"),
        _by_rank("COUNT(DISTINCT bidder)", "bidders"),
        _by_rank("COUNT(DISTINCT auction)", "auctions"),
    )
)
_BIDS_WHILE_OPEN = """
    SELECT A.id, A.seller, A.category, B.bidder, B.price, B.url, B.`dateTime` AS bidTime
    FROM auctions A JOIN bids B
    ON A.id = B.auction
    AND B.`dateTime` BETWEEN A.`dateTime` AND TO_TIMESTAMP_LTZ(A.expires, 3)
"""
_TEN_SECONDS = "DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND"

QUERIES = {
    "q3": """
        SELECT P.name, P.city, P.state, A.id
        FROM auctions A JOIN persons P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        SELECT category, AVG(CAST(`final` AS DOUBLE)) AS average FROM (
            SELECT id, category, MAX(price) AS `final` FROM ({_BIDS_WHILE_OPEN})
            GROUP BY id, category)
        GROUP BY category
    """,
    "q5": """
        SELECT window_start AS `start`, bids, auction FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end ORDER BY bids DESC, auction DESC) AS place
            FROM (
                SELECT auction, COUNT(*) AS bids, window_start, window_end
                FROM HOP(TABLE bids, DESCRIPTOR(`dateTime`),
                    INTERVAL '2' SECOND, INTERVAL '10' SECOND)
                GROUP BY auction, window_start, window_end))
        WHERE place = 1
    """,
    "q7": f"""
        SELECT window_start AS `start`, price, auction, bidder FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end
                ORDER BY price DESC, auction DESC, bidder DESC) AS place
            FROM TUMBLE(TABLE bids, {_TEN_SECONDS}))
        WHERE place = 1
    """,
    "q8": f"""
        SELECT P.id, P.name, P.window_start AS `start` FROM (
            SELECT id, name, window_start, window_end FROM TUMBLE(TABLE persons, {_TEN_SECONDS})
            GROUP BY id, name, window_start, window_end) P
        JOIN (
            SELECT seller, window_start, window_end FROM TUMBLE(TABLE auctions, {_TEN_SECONDS})
            GROUP BY seller, window_start, window_end) A
        ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end
    """,
    "q9": f"""
        SELECT id, seller, category, bidder, price, bidTime FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY id ORDER BY price DESC, bidTime, bidder, url) AS place
            FROM ({_BIDS_WHILE_OPEN}))
        WHERE place = 1
    """,
    "q11": """
        SELECT bidder, COUNT(*) AS bids, window_start AS `start`, window_end AS `end`
        FROM SESSION(
            TABLE bids PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)
        GROUP BY bidder, window_start, window_end
    """,
    "q12": f"""
        SELECT bidder, COUNT(*) AS bids, window_start AS `start`
        FROM TUMBLE(TABLE bids, {_TEN_SECONDS})
        GROUP BY bidder, window_start, window_end
    """,
    "q15": f"SELECT {DAY} AS `day`, {_DISTINCT} FROM bids GROUP BY {DAY}",
    "q16": f"""
        SELECT channel, {DAY} AS `day`, {_DISTINCT} FROM bids GROUP BY channel, {DAY}
    """,
    "q17": f"""
        SELECT auction, {DAY} AS `day`, {_by_rank("COUNT(*)", "bids")},
            MIN(price) AS least, MAX(price) AS most, SUM(price) AS `sum`
        FROM bids GROUP BY auction, {DAY}
    """,
    "q18": """
        SELECT auction, bidder, `dateTime`, price, channel, url FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY auction, bidder
                ORDER BY `dateTime` DESC, price DESC, channel DESC, url DESC) AS place
            FROM bids)
        WHERE place = 1
    """,
    "q19": """
        SELECT * FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY auction ORDER BY price DESC, `dateTime`, bidder, url) AS place
            FROM bids)
        WHERE place <= 10
    """,
    "q20": """
        SELECT B.bidder, B.price, B.channel, B.url, B.`dateTime`, A.id, A.itemName, A.description,
            A.initialBid, A.reserve, A.expires, A.seller, A.category, A.`dateTime` AS opened
        FROM bids B JOIN auctions A ON B.auction = A.id
        WHERE A.category = 10
    """,
}
