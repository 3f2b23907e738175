//! Answers of the admin API as text for people.

use std::fmt::Write;

use forebay_gateway::admin::messages::{
    CacheStats, Compared, JobState, JobStatus, JobsAnswer, LookupAnswer, StatsAnswer, StoredObject,
    TopAnswer,
};

/// A number of bytes in the largest unit that leaves a whole number before the point.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut tenths = u128::from(count) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// `forebay admin cache stats`.
pub(super) fn stats(answer: &StatsAnswer) -> String {
    if answer.caches.is_empty() {
        return "no route has a cache\n".to_owned();
    }
    let caches: Vec<String> = answer.caches.iter().map(one_cache).collect();
    caches.join("\n")
}

fn one_cache(cache: &CacheStats) -> String {
    let percent = (cache.used_bytes * 100).checked_div(cache.capacity_bytes);
    let ttl = cache.ttl_seconds.map(|ttl| format!(", ttl {ttl} s"));
    let rows = [
        ("buckets", cache.buckets.join(", ")),
        (
            "coherence",
            format!("{}{}", cache.coherence, ttl.unwrap_or_default()),
        ),
        (
            "memory",
            format!(
                "{} of {} ({}%), pages of {}",
                bytes(cache.used_bytes),
                bytes(cache.capacity_bytes),
                percent.unwrap_or(0),
                bytes(cache.page_bytes)
            ),
        ),
        (
            "entries",
            format!("{}, {} made room", cache.entries, cache.evicted),
        ),
        ("from pages", bytes(cache.hit_bytes)),
        (
            "from origin",
            format!(
                "{} in {} fills, {} requests joined one, {} validated",
                bytes(cache.fill_bytes),
                cache.fills,
                cache.collapsed,
                cache.validated
            ),
        ),
        (
            "removed",
            format!(
                "{} writes passed, {} entries purged",
                cache.invalidations, cache.purged
            ),
        ),
        (
            "pinned",
            format!("{}, {}", objects(cache.pinned), bytes(cache.pinned_bytes)),
        ),
    ];
    let mut rows = Vec::from(rows);
    if let Some(disk) = &cache.disk {
        let text = format!(
            "{} of {}, {} entries, {} read from it",
            bytes(disk.used_bytes),
            bytes(disk.capacity_bytes),
            disk.entries,
            bytes(disk.hit_bytes)
        );
        rows.push(("disk", text));
    }
    for (of, shadows) in [("memory", &cache.shadows), ("disk", &cache.disk_shadows)] {
        let shown = shadows.iter().filter_map(|shadow| {
            let percent = shadow.hit_ratio? * 100.0;
            Some(format!("{percent:.1}% of reads with {}x {of}", shadow.size))
        });
        let shown: Vec<_> = shown.collect();
        if !shown.is_empty() {
            rows.push(("would hit", shown.join(", ")));
        }
    }
    let head = format!("cache {} before store {}\n", cache.cache, cache.store);
    head + &list(&rows)
}

/// `forebay admin cache top`.
pub(super) fn top(answer: &TopAnswer) -> String {
    if answer.objects.is_empty() {
        return "nothing is stored\n".to_owned();
    }
    let mut rows = vec![["hits", "in cache", "size", "object"].map(str::to_owned)];
    rows.extend(answer.objects.iter().map(|object| {
        let version = object
            .version_id
            .as_ref()
            .map(|id| format!("?versionId={id}"));
        [
            object.hits.to_string(),
            bytes(object.bytes),
            bytes(object.size_bytes),
            printable(&format!(
                "{}/{}{}",
                object.bucket,
                object.key,
                version.unwrap_or_default()
            )),
        ]
    }));
    table(&rows)
}

/// `forebay admin cache lookup`.
pub(super) fn lookup(answer: &LookupAnswer) -> String {
    let name = printable(&format!("{}/{}", answer.bucket, answer.key));
    let place = format!("cache {} before store {}", answer.cache, answer.store);
    match &answer.stored {
        None => format!("{name}: not stored in {place}\n"),
        Some(stored) => format!("{name}: stored in {place}\n{}", stored_rows(stored)),
    }
}

/// An age that no run of a gateway has: what it was before this run is not known.
const LONG_AGO_SECONDS: f64 = 1e12;

fn stored_rows(stored: &StoredObject) -> String {
    let standing = match (&stored.stale_reason, stored.fresh_seconds) {
        (Some(why), _) => format!("stale: {why}"),
        (None, Some(left)) => format!("fresh, for {left} s more"),
        (None, None) => "fresh, without an end".to_owned(),
    };
    list(&[
        ("standing", standing),
        ("etag", stored.etag.clone()),
        ("size", bytes(stored.size_bytes)),
        (
            "in cache",
            format!(
                "{} of {} pages, {}; {} on disk",
                stored.pages,
                stored.pages_total,
                bytes(stored.cached_bytes),
                stored.disk_pages
            ),
        ),
        (
            "origin",
            if stored.age_seconds > LONG_AGO_SECONDS {
                "has not vouched for it since the start".to_owned()
            } else {
                format!("vouched for it {} s ago", whole(stored.age_seconds))
            },
        ),
        (
            "hits",
            format!(
                "{}, the last {} s ago",
                stored.hits,
                whole(stored.idle_seconds)
            ),
        ),
        (
            "queue",
            stored
                .queue
                .clone()
                .unwrap_or_else(|| "none: on disk".to_owned()),
        ),
        (
            "policy",
            format!(
                "{}, keep {}, place {}, pages of {}",
                stored.policy.coherence,
                stored.policy.keep,
                stored.policy.place,
                bytes(stored.policy.page_bytes)
            ),
        ),
    ])
}

/// `forebay admin jobs`.
pub(super) fn jobs(answer: &JobsAnswer) -> String {
    if answer.jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let head = ["id", "kind", "state", "done", "bytes", "seconds", "what"].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(answer.jobs.iter().map(|job| {
        let done = match job.total {
            Some(total) => format!("{}/{total}", job.done),
            None => job.done.to_string(),
        };
        [
            job.id.to_string(),
            job.kind.clone(),
            state(job.state).to_owned(),
            done,
            bytes(job.bytes),
            whole(job.seconds),
            printable(&job.what),
        ]
    }));
    table(&rows)
}

/// What became of one job.
pub(super) fn job(job: &JobStatus) -> String {
    let mut text = format!(
        "{} of {}: {}, {}, {} in {:.1} s",
        job.kind,
        printable(&job.what),
        state(job.state),
        objects(job.done),
        bytes(job.bytes),
        job.seconds
    );
    let compared = job.compared.as_ref();
    let of = |count: fn(&Compared) -> u64| compared.map_or(0, count);
    for (count, word) in [
        (job.fresh, "fresh already"),
        (job.not_kept, "never kept"),
        (job.missing, "not there"),
        (of(|all| all.missing), "that some members lack"),
        (of(|all| all.differing), "that differ"),
        (of(|all| all.undecided), "that may differ"),
        (of(|all| all.pending), "to be repaired by the journal"),
        (of(|all| all.repaired), "made equal"),
        (of(|all| all.deleted), "of them deleted"),
        (job.failed, "failed"),
    ] {
        if count > 0 {
            let _ = write!(text, "; {count} {word}");
        }
    }
    text.push('\n');
    for line in job.note.iter().chain(&job.errors) {
        let _ = writeln!(text, "  {}", printable(line));
    }
    text
}

/// A job that is not waited for.
pub(super) fn detached(status: &JobStatus) -> String {
    match status.state {
        JobState::Running => format!(
            "job {} is under way: `forebay admin jobs {}` tells how far\n",
            status.id, status.id
        ),
        JobState::Done | JobState::Failed | JobState::Cancelled => job(status),
    }
}

fn state(state: JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Done => "done",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
    }
}

pub(super) fn objects(count: u64) -> String {
    match count {
        1 => "1 object".to_owned(),
        more => format!("{more} objects"),
    }
}

pub(super) fn whole(seconds: f64) -> String {
    format!("{seconds:.0}")
}

/// A key can hold anything; a terminal should get none of it that moves the cursor.
pub(super) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

pub(super) fn list(rows: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<12} {value}");
    }
    text
}

/// Columns as wide as their widest; all but the last are flush right.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            if column + 1 == N {
                text.push_str(cell);
            } else {
                let _ = write!(text, "{cell:>width$}  ", width = widths[column]);
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_their_unit() {
        for (count, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1023.9 KiB"),
            (10 * 1024 * 1024, "10.0 MiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(bytes(count), shown);
        }
    }

    #[test]
    fn a_key_can_not_move_the_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "  a  bb\nccc  d\n");
    }
}
