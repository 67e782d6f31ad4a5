-- Top-level scalars of metadata. `hash` stands for the value; the row itself is compared before it is shown.
CREATE TABLE search (
    tenant TEXT NOT NULL,
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    hash INTEGER NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, name, hash, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX search_by_row ON search (kind, id);

-- The checksum of the metadata that a row's search rows were made from: they are rewritten only when it changes.
ALTER TABLE threads ADD COLUMN searched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN searched INTEGER NOT NULL DEFAULT 0;
