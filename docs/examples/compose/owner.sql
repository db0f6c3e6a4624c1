-- Run once, while the volume is empty. As on managed PostgreSQL, the tables' owner is no superuser; it may make roles,
-- for split_database_roles.
\getenv password OWNER_PASSWORD
CREATE ROLE shell LOGIN CREATEROLE PASSWORD :'password';
ALTER DATABASE :"DBNAME" OWNER TO shell;
