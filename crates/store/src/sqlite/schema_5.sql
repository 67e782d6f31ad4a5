-- A message's id is unique in its thread; another thread may hold the same one.
DROP INDEX messages_by_id;
CREATE INDEX messages_by_id ON messages (tenant, id);
CREATE UNIQUE INDEX messages_by_thread ON messages (thread, id);
-- Another id by which a message's agent knows it.
ALTER TABLE messages ADD COLUMN alias TEXT;
CREATE INDEX messages_by_alias ON messages (thread, alias) WHERE alias IS NOT NULL;
