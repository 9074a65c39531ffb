"""Tables and views as DuckDB sees them: the SQL of the views, query sessions, and the processes of client queries."""
