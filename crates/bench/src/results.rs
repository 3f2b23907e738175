//! The run file: what one run measured, and of what.
//!
//! `forebay bench run` writes it; tables, comparisons, charts and CSV read it and nothing else. It
//! is JSON, described by [`schema_text`] and docs/bench-results.md. Units are in the names of the
//! fields. Sums are never stored where they can be computed, so a file can't contradict itself.
//!
//! Version: within one version, fields are only added, and a reader passes over those it doesn't
//! know. A change of what a field means is a new version, which readers of the old one refuse.
//!
//! Secrets never enter a run: commands come from [`redacted`], addresses from [`Endpoint::new`].

mod command;
mod histogram;
mod machine;
mod measurement;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fs, io, io::Write as _, path::Path};

use forebay_s3::time::rfc3339_millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use command::redacted;
pub use histogram::Histogram;
pub use machine::Machine;
pub(crate) use measurement::exact;
pub use measurement::{Case, ClientCost, Load, Measurement, OriginTraffic, Second, Warning};

/// Name and version of the format, as the field `schema` of every run file has it.
pub const SCHEMA: &str = "forebay-bench/1";

/// One run: one command, its rounds and all that they measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Always `forebay-bench/1` in this version.
    #[schemars(regex(pattern = r"^forebay-bench/1$"))]
    schema: String,
    /// What measured, such as `forebay 0.1.0`.
    pub program: String,
    /// When the run began: RFC 3339, UTC, such as `2026-11-21T11:30:00.000Z`.
    pub started: String,
    /// The command line, secrets replaced by `***`.
    pub command: Vec<String>,
    /// Where the load came from.
    pub machine: Machine,
    /// What was asked of the endpoints.
    pub workload: Workload,
    /// What was measured; measurements name an endpoint by its place here.
    pub endpoints: Vec<Endpoint>,
    /// Rounds planned; in each, the endpoints took turns.
    pub rounds: u32,
    /// Whether the run did all that it had planned.
    pub outcome: Outcome,
    /// What limits the worth of the figures as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// What was measured, in the order of measuring.
    pub measurements: Vec<Measurement>,
}

/// What was asked of the endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Such as `get`, `hot`, `mixed`.
    pub name: String,
    /// Every parameter that shaped it, also those left at their default, as on the command line.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

/// One endpoint under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    /// Short and unique within the run; tables and charts show it.
    pub label: String,
    /// Its address, without credentials or query.
    pub url: String,
    /// Its `Server` header, if it sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

impl Endpoint {
    /// An endpoint that is shown as `label`; what may be secret in its address is left out.
    pub fn new(label: &str, url: &str) -> Self {
        Self {
            label: label.to_owned(),
            url: command::without_credentials(url),
            server: None,
        }
    }
}

/// Whether a run did all that it had planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Outcome {
    /// It did.
    Complete,
    /// It ended early: what was measured until then is here.
    Interrupted {
        /// Why, for people: `interrupted by SIGINT`, `endpoint b: connection refused`.
        reason: String,
    },
}

/// Why a run file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file can't be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not JSON, or JSON without the mark of a run file.
    #[error("not a run file of `forebay bench`: {0}")]
    Foreign(String),
    /// Of another version of the format.
    #[error(
        "its format is {found:?}, and this program reads {SCHEMA:?}; \
         read it with the version of forebay that wrote it, or measure again"
    )]
    Version {
        /// The version that the file names.
        found: String,
    },
    /// Of this version, but not as the schema has it.
    #[error("not a valid {SCHEMA} file: {0}")]
    Invalid(String),
}

impl Run {
    /// A run that has measured nothing yet; `started_unix_millis` is when it began.
    pub fn new(
        program: String,
        started_unix_millis: i64,
        machine: Machine,
        workload: Workload,
        endpoints: Vec<Endpoint>,
    ) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            program,
            started: rfc3339_millis(started_unix_millis).as_str().to_owned(),
            command: Vec::new(),
            machine,
            workload,
            endpoints,
            rounds: 0,
            outcome: Outcome::Complete,
            warnings: Vec::new(),
            measurements: Vec::new(),
        }
    }

    /// Reads a run from the bytes of a run file and checks that it holds together.
    ///
    /// # Errors
    /// [`ReadError`] for anything that is not a whole run file of this version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReadError> {
        /// The one field that every version has.
        #[derive(Deserialize)]
        struct Mark {
            schema: String,
        }
        let mark: Mark =
            serde_json::from_slice(bytes).map_err(|error| ReadError::Foreign(error.to_string()))?;
        if !mark.schema.starts_with("forebay-bench/") {
            let found = format!("its schema is {:?}", mark.schema);
            return Err(ReadError::Foreign(found));
        }
        if mark.schema != SCHEMA {
            return Err(ReadError::Version { found: mark.schema });
        }
        let run: Self =
            serde_json::from_slice(bytes).map_err(|error| ReadError::Invalid(error.to_string()))?;
        run.check().map_err(ReadError::Invalid)?;
        Ok(run)
    }

    /// Reads a run file.
    ///
    /// # Errors
    /// As [`Run::parse`], and when the file can't be read.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse(&fs::read(path)?)
    }

    /// Prints the run file: JSON, one line for each measurement, so that files compare well.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut head = self.clone();
        let measurements = std::mem::take(&mut head.measurements);
        let text = serde_json::to_string_pretty(&head)?;
        // The empty list of measurements is the last field.
        out.write_all(text.trim_end_matches("[]\n}").as_bytes())?;
        out.write_all(b"[")?;
        for (index, measurement) in measurements.iter().enumerate() {
            out.write_all(if index == 0 { b"\n    " } else { b",\n    " })?;
            serde_json::to_writer(&mut *out, measurement)?;
        }
        out.write_all(b"\n  ]\n}\n")
    }

    /// Writes the run file, whole or not at all: beside its place first, then renamed.
    ///
    /// # Errors
    /// When the place can't be written or is full; nothing is left behind then.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_whole(path, |out| self.print(out))
    }

    /// What must hold between the fields and no type says.
    fn check(&self) -> Result<(), String> {
        if self.endpoints.is_empty() {
            return Err("no endpoints".to_owned());
        }
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let earlier = &self.endpoints[..index];
            if earlier.iter().any(|other| other.label == endpoint.label) {
                return Err(format!("two endpoints are labelled {:?}", endpoint.label));
            }
        }
        for (index, measurement) in self.measurements.iter().enumerate() {
            measurement
                .check(self.endpoints.len())
                .map_err(|fault| format!("measurement {index}: {fault}"))?;
        }
        Ok(())
    }
}

/// Fills a file that is seen whole at `path` or not at all. What is no file, such as a pipe, is
/// written as it stands.
///
/// # Errors
/// Those of `fill` and of the file system; the file is then as it was before.
pub(crate) fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let mut out = io::BufWriter::new(fs::OpenOptions::new().write(true).open(path)?);
        fill(&mut out)?;
        return out.flush();
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    let beside = Path::new(&beside);
    let written = fs::File::create(beside).and_then(|file| {
        let mut out = io::BufWriter::new(file);
        fill(&mut out)?;
        out.flush()?;
        fs::rename(beside, path)
    });
    if written.is_err() {
        // It may not even have come to be; the first error is the one to tell.
        let _ = fs::remove_file(beside);
    }
    written
}

/// The JSON schema of a run file.
pub fn schema_text() -> String {
    let schema = schemars::schema_for!(Run);
    format!("{:#}", schema.as_value())
}
