"""Schema: columns, and the views, guards and links derived from the tables.

The tables come from migrations. Views, the guard of settled facts and the rule of duplicates come
from here, and every upgrade recreates them; so each is written once, for both databases. In: the
columns of the model. Out: SQL for SQLite and PostgreSQL.
Uses: model, store.
"""
