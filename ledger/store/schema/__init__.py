"""Schema: columns, and what the database derives from its tables: views, guards, links.

The tables come from migrations. Views, the guard of settled facts and the rule of duplicates come
from here, and every upgrade makes them anew; so each is written once, for both databases.
In: the columns of the model. Out: SQL for SQLite and PostgreSQL.
Uses: pricing, model.
"""
