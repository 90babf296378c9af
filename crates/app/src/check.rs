//! `flashyard check`: verifies a pool where it lies, without changing it and without a running target.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use flashyard_block::pool::{Report, check};
use flashyard_block::{FileDevice, FileOptions};
use flashyard_runtime::{Rt, uring};
use serde_json::json;

use crate::cli::CheckArgs;
use crate::commands::print_json;
use crate::out::say_line;

/// Prints what was found; an unsound pool is a failure.
pub fn run(args: &CheckArgs) -> Result<(), String> {
    let (path, block_size) = (args.file.clone(), args.block_size);
    let report = uring::run(uring::Config::default(), |rt| async move {
        look(&rt, &path, block_size).await
    });
    let report = report.map_err(|error| error.to_string())??;
    show(args, &report);
    if report.is_sound() {
        Ok(())
    } else {
        Err(format!(
            "{} is not sound: restore it from a backup",
            args.file.display()
        ))
    }
}

async fn look(rt: &Rt, path: &Path, block_size: u32) -> Result<Report, String> {
    let kind = std::fs::metadata(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?
        .file_type();
    let device = if kind.is_block_device() {
        FileDevice::open_block(rt, path, block_size, true)
    } else {
        FileDevice::open(
            rt,
            path,
            FileOptions {
                block_size,
                size: None,
                read_only: true,
            },
        )
        .await
    };
    let device = device.map_err(|error| error.to_string())?;
    check(&device)
        .await
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn show(args: &CheckArgs, report: &Report) {
    if !args.json {
        say_line!("{report}");
        return;
    }
    let copies = report.copies.iter().map(
        |copy| json!({ "whole": copy.whole, "generation": copy.generation, "state": copy.state }),
    );
    let volumes = report.volumes.iter().map(|volume| json!({ "name": volume.name, "bytes": volume.bytes, "allocated": volume.allocated }));
    print_json(&json!({
        "sound": report.is_sound(),
        "copies": copies.collect::<Vec<_>>(),
        "volumes": volumes.collect::<Vec<_>>(),
        "problems": report.problems,
    }));
}
