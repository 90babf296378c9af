//! The tables of the state store.

/// The store's file in the state directory.
pub(super) const STORE: &str = "state.db";

/// Layout of the tables; a newer program's store is refused, an older one is brought up to date.
pub(super) const VERSION: i64 = 5;

pub(super) const SCHEMA: &str = "
    CREATE TABLE target (id INTEGER PRIMARY KEY CHECK (id = 0), uuid BLOB NOT NULL);
    CREATE TABLE device (name TEXT PRIMARY KEY, spec TEXT NOT NULL) STRICT;
    CREATE TABLE pool (name TEXT PRIMARY KEY, spec TEXT NOT NULL, uuid BLOB NOT NULL) STRICT;
    CREATE TABLE tenant (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL,
        nsid_next INTEGER NOT NULL DEFAULT 1) STRICT;
    CREATE TABLE volume (name TEXT PRIMARY KEY, spec TEXT NOT NULL, uuid BLOB NOT NULL, nsid INTEGER NOT NULL,
        phase TEXT NOT NULL CHECK (phase IN ('creating', 'ready', 'deleting'))) STRICT;
";

/// What version 2 has beside the tables of version 1.
pub(super) const SINCE_2: &str = "
    ALTER TABLE target ADD COLUMN life TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE target ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';
    CREATE TABLE counted (tenant INTEGER PRIMARY KEY, counters TEXT NOT NULL) STRICT;
    CREATE TABLE content (id INTEGER PRIMARY KEY CHECK (id = 0), digest BLOB NOT NULL) STRICT;
";

/// What version 3 has beside that: files that were applied, and a tenant's volumes without a look
/// at all others.
pub(super) const SINCE_3: &str = "
    CREATE TABLE document (name TEXT PRIMARY KEY, content TEXT NOT NULL) STRICT;
    CREATE INDEX volume_of_tenant ON volume (json_extract(spec, '$.tenant'));
";

/// What version 4 has beside that.
pub(super) const SINCE_4: &str = "
    CREATE TABLE function (name TEXT PRIMARY KEY, spec TEXT NOT NULL) STRICT;
";

/// What version 5 has beside that: volumes that go to another pool.
pub(super) const SINCE_5: &str = "
    ALTER TABLE volume ADD COLUMN move TEXT;
";
