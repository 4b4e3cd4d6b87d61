"""Logs in a PostgreSQL database, for agents on several machines. What imports psycopg is imported when it is used."""
