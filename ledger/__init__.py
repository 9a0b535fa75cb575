"""The ledger: tables, money and time. It knows no wire format and no mitmproxy.

Pure, values in and values out:
    records   the rows as values: exchange, reading, charge
    usage     token figures in the ledger's convention, and the door they come through
    money     integer pico-USD
    prices    what a vendor publishes per unit, in force from a moment
    charges   a reading and prices -> lines
    identity  which exchanges are the same billed response
Database, writing:
    tables    the schema                     db           engines, first use, migrations
    writer    receipts, group commit         intake       a batch as one SQLite statement
    recovery  what dead processes left open  nodes        who is alive
    sync      merging ledgers                interchange  exchanges as JSON, from SQL to SQL
    shipper   spool -> PostgreSQL            spool        what waits, what was refused
    partitions, retention, corrections       rollup       sums of days that are over
Database, reading:
    described what every column holds        reports, lookup, …
People:
    reports   figures -> tables     render   tables -> text     cli   commands
"""
