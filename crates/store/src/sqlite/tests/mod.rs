//! Tests of this engine alone: group transactions, migrations, files, damage, full disks.

mod damage;
mod disk;
mod files;
mod foreign_files;
mod group;
mod log_loss;
mod migration;
mod plan;
mod reading;
mod removal;
mod row_cache;
mod seed;
mod statements;
mod wal_file;
