-- The trace of whoever emitted an event, which the runs that it starts join.

ALTER TABLE events ADD COLUMN traceparent text;
