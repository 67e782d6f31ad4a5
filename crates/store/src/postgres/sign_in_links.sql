-- Links that sign a browser in, each once, on any node. `code` is the hash of what the link holds, `token` that of the token in whose name the session will be.
CREATE TABLE sign_in_links (
    code BYTEA PRIMARY KEY,
    token BYTEA NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX sign_in_links_by_expiry ON sign_in_links (expires_at);
