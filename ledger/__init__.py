"""The ledger: tables, money and time. It knows no wire format and no mitmproxy.

Pure, values in and values out:
    records   the rows as values: exchange, reading, charge
    usage     token figures in the ledger's convention, and the door they come through
    money     integer pico-USD
    prices    what a vendor publishes per unit, in force from a moment
    charges   a reading and prices -> lines
Database:
    tables    the schema        db       engines, first use, migrations
    writer    group commit      sync     merging ledgers
    queries   what reports ask
People:
    reports   figures -> tables     render   tables -> text     cli   commands
"""
