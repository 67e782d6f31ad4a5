-- Large content may be in a bucket beside the database: `object` names it there, and `data` is empty.
ALTER TABLE blobs ADD COLUMN object TEXT COLLATE "C";

-- Objects of the bucket that no blob names: those of content that was removed, and those of uploads that have not ended.
-- One is removed when it falls due. `doomed` says that its removal has begun: no upload can end with it.
CREATE TABLE blob_objects (
    object TEXT COLLATE "C" PRIMARY KEY,
    due TIMESTAMPTZ NOT NULL,
    doomed BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX blob_objects_by_due ON blob_objects (due);

-- A trigger, so that a server that knows nothing of the bucket leaves no object behind.
CREATE FUNCTION note_removed_object() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO blob_objects (object, due) VALUES (OLD.object, now())
        ON CONFLICT (object) DO UPDATE SET due = now();
    RETURN NULL;
END
$$;
CREATE TRIGGER blobs_removed AFTER DELETE ON blobs FOR EACH ROW
    WHEN (OLD.object IS NOT NULL) EXECUTE FUNCTION note_removed_object();

-- The least version that a program has to know to use the store. A migration raises it when older programs cannot go on.
ALTER TABLE schema_version ADD COLUMN min_version BIGINT NOT NULL DEFAULT 1;
