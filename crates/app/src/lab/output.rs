//! The files that a run writes. That they can be written is found out before it begins, and none is
//! ever seen half written.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use flashyard_lab::report::Report;
use flashyard_lab::{Experiment, plot};

/// What cannot be written.
#[derive(Debug)]
pub enum OutputError {
    /// Plots into this directory.
    Plots(PathBuf, io::Error),
    /// This file.
    File(PathBuf, io::Error),
}

impl OutputError {
    /// What the system says.
    pub fn why(&self) -> &io::Error {
        let (Self::Plots(_, error) | Self::File(_, error)) = self;
        error
    }
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plots(directory, error) => {
                write!(
                    f,
                    "cannot write plots into {}: {error}",
                    directory.display()
                )
            }
            Self::File(file, error) => write!(f, "cannot write {}: {error}", file.display()),
        }
    }
}

/// Where to write what.
pub(super) struct Outputs<'a> {
    plot: Option<&'a Path>,
    markdown: Option<&'a Path>,
}

impl<'a> Outputs<'a> {
    /// Makes the directory for plots if there is none, and refuses what cannot be written.
    pub(super) fn prepare(
        plot: Option<&'a Path>,
        markdown: Option<&'a Path>,
    ) -> Result<Self, OutputError> {
        if let Some(directory) = plot {
            fs::create_dir_all(directory)
                .and_then(|()| probe(&directory.join("plot")))
                .map_err(|error| OutputError::Plots(directory.to_owned(), error))?;
        }
        if let Some(file) = markdown {
            let refused = |error| OutputError::File(file.to_owned(), error);
            if file.is_dir() || file.file_name().is_none() {
                return Err(refused(io::ErrorKind::IsADirectory.into()));
            }
            probe(file).map_err(refused)?;
        }
        Ok(Self { plot, markdown })
    }

    /// Writes everything, and returns what was written.
    pub(super) fn write(
        &self,
        report: &Report,
        experiment: &dyn Experiment,
        again: &str,
    ) -> Result<Vec<PathBuf>, OutputError> {
        let mut files = Vec::new();
        if let Some(directory) = self.plot {
            let name = report.experiment;
            let page = report.page(experiment, again);
            files.push((directory.join(format!("{name}.html")), page));
            files.extend(report.charts.iter().map(|chart| {
                let file = directory.join(format!("{name}-{}.svg", chart.name));
                (file, plot::svg(chart))
            }));
        }
        if let Some(file) = self.markdown {
            files.push((file.to_owned(), report.markdown(experiment, again)));
        }
        let mut written = Vec::new();
        for (path, content) in files {
            replace(&path, &content).map_err(|error| OutputError::File(path.clone(), error))?;
            written.push(path);
        }
        Ok(written)
    }
}

/// Whether a file could be put where `path` is; leaves nothing behind.
fn probe(path: &Path) -> io::Result<()> {
    let beside = beside(path);
    fs::write(&beside, "")?;
    fs::remove_file(&beside)
}

/// Writes a file whole: what was there before stays until then.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let beside = beside(path);
    let written = fs::write(&beside, content).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// A name next to `path`, of this process.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    PathBuf::from(name)
}
