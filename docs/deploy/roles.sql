-- Run once, by psql, when the database is made: the roles that servers and workers log in as. What
-- they may do is what every migration grants to stepwell_server and stepwell_worker.
\getenv server_password SERVER_PASSWORD
\getenv worker_password WORKER_PASSWORD
CREATE ROLE stepwell_server NOLOGIN;
CREATE ROLE stepwell_worker NOLOGIN;
CREATE ROLE server LOGIN PASSWORD :'server_password' IN ROLE stepwell_server;
CREATE ROLE worker LOGIN PASSWORD :'worker_password' IN ROLE stepwell_worker;
