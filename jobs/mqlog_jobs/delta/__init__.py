"""Change rows into tables of Delta Lake, by the package deltalake.

``lake_table`` merges the changes of one table, ``table_input`` makes typed keys and values of
change rows, ``ddl`` reads DDL statements, ``run_state`` keeps how far each table is, ``change_run``
takes batches and gives each table its part.
"""
