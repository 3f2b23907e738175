//! Bills for people, and as JSON.

use std::{io::Write, time::Duration};

use anyhow::Result;
use serde_json::{Value, json};

use super::{Advice, Hot, Money, Prices, Statement, TooMuch, Workload, advice::BreakEven};
use crate::quantity::{show_size, show_time};

/// Version of the JSON: raised when a field changes its meaning or goes.
const FORMAT_VERSION: u32 = 1;

/// All that was found out.
pub(super) struct Report {
    /// All in one store, for each of them, then a tier for each hot store.
    pub(super) statements: Vec<Statement>,
    pub(super) advice: Vec<Advice>,
    /// The age at which each tier's bill demotes.
    pub(super) demote_after: Vec<Duration>,
}

/// What is printed.
pub(super) struct Bill<'a> {
    pub(super) workload: &'a Workload,
    pub(super) prices: &'a Prices,
    pub(super) report: &'a Report,
    /// The ages of reads are our guess.
    pub(super) assumes_ages: bool,
}

impl Report {
    /// Finds everything out; a tier's bill is of `demote_after`, or of the age that was judged
    /// best.
    pub(super) fn make(
        workload: &Workload,
        demote_after: Option<Duration>,
        prices: &Prices,
    ) -> Result<Self, TooMuch> {
        let mut report = Self {
            statements: vec![
                workload.in_s3(prices)?,
                workload.in_express(prices)?,
                workload.in_redis(prices)?,
            ],
            advice: Vec::new(),
            demote_after: Vec::new(),
        };
        for hot in Hot::ALL {
            let advice = Advice::find(workload, hot, prices)?;
            let age = demote_after.unwrap_or(advice.judged_age);
            report.statements.push(workload.in_tier(hot, age, prices)?);
            report.demote_after.push(age);
            report.advice.push(advice);
        }
        Ok(report)
    }

    /// The age at which each statement demotes; `None` for those without a tier.
    fn ages(&self) -> impl Iterator<Item = Option<Duration>> {
        let untiered = self.statements.len() - self.demote_after.len();
        std::iter::repeat_n(None, untiered).chain(self.demote_after.iter().copied().map(Some))
    }
}

/// Writes it for people.
pub(super) fn text(bill: &Bill<'_>, out: &mut dyn Write) -> Result<()> {
    workload(bill, out)?;
    writeln!(
        out,
        "\n{:<34} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "USD for the period", "requests", "storage", "nodes", "total", "with data out"
    )?;
    for (statement, age) in bill.report.statements.iter().zip(bill.report.ages()) {
        let name = match age {
            Some(age) => format!("{} for {}", statement.name, show_time(age)),
            None => statement.name.clone(),
        };
        writeln!(
            out,
            "{name:<34} {:>12} {:>12} {:>12} {:>12} {:>12}",
            grouped_money(statement.requests),
            grouped_money(statement.storage),
            grouped_money(statement.nodes),
            grouped_money(statement.total()),
            grouped_money(statement.total_with_transfer()),
        )?;
    }
    let transfer = bill
        .report
        .statements
        .first()
        .map_or(Money::ZERO, |s| s.transfer);
    writeln!(out, "\nData out of the region: {}", grouped_money(transfer))?;
    for statement in bill.report.statements.iter().filter(|s| s.redis_nodes > 0) {
        let nodes = statement.redis_nodes;
        writeln!(
            out,
            "{}: {} Redis node{}",
            statement.name,
            grouped(nodes),
            plural(nodes)
        )?;
    }
    advice(bill, out)?;
    notes(bill, out)
}

fn workload(bill: &Bill<'_>, out: &mut dyn Write) -> Result<()> {
    let workload = bill.workload;
    writeln!(
        out,
        "{} objects of {} written over {}, each kept {}",
        grouped(workload.objects),
        show_size(workload.size_bytes),
        show_time(workload.over),
        show_time(workload.kept),
    )?;
    let ages: Vec<_> = workload
        .reads_by_age
        .iter()
        .map(|(age, share)| format!("{share} of reads within {}", show_time(*age)))
        .collect();
    writeln!(
        out,
        "{} PUT, {} GET ({}{}), {} LIST; {} of the bytes read leave the region",
        grouped(workload.puts),
        grouped(workload.gets),
        ages.join(", "),
        if bill.assumes_ages {
            ": assumed, see --hot-gets"
        } else {
            ""
        },
        grouped(workload.lists),
        workload.leaving,
    )?;
    writeln!(out, "month of {}", show_time(bill.prices.month))?;
    Ok(())
}

fn advice(bill: &Bill<'_>, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "\n{:<12} {:>8} {:>14} {:>16} {:>16} {:>16} {:>13}",
        "hot on",
        "judged",
        "saved by it",
        "break-even size",
        "break-even age",
        "max_object_size",
        "demote_after"
    )?;
    for advice in &bill.report.advice {
        writeln!(
            out,
            "{:<12} {:>8} {:>14} {:>16} {:>16} {:>16} {:>13}",
            advice.hot.name(),
            show_time(advice.judged_age),
            grouped_money(advice.saved),
            shown(advice.break_even_size, rounded_size),
            shown(advice.break_even_age, rounded_time),
            show_size(advice.max_object_size),
            show_time(advice.demote_after),
        )?;
    }
    Ok(())
}

fn notes(bill: &Bill<'_>, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "\nAdvice is by money alone, with nodes counted by the byte as if they were full; the \
         bills count\nthem whole. A tier is also faster, which no bill tells."
    )?;
    let workload = bill.workload;
    let usable = bill.prices.redis.usable_bytes;
    let needed = u128::from(workload.objects)
        * u128::from(workload.size_bytes)
        * u128::from(workload.kept.as_secs())
        / u128::from(workload.over.as_secs().max(1));
    if let Some(nodes) = workload.redis_nodes
        && u128::from(nodes) * u128::from(usable) < needed
    {
        writeln!(
            out,
            "note: {nodes} Redis node{} can keep {}, and the objects take {} at any moment: leave \
             --redis-nodes\nout to pay for as many as hold them",
            plural(nodes),
            rounded_size(u64::try_from(u128::from(nodes) * u128::from(usable)).unwrap_or(u64::MAX)),
            rounded_size(u64::try_from(needed).unwrap_or(u64::MAX)),
        )?;
    }
    Ok(())
}

/// Writes it for programs. Money is in US dollars, as text, to the millionth.
pub(super) fn json(bill: &Bill<'_>, out: &mut dyn Write) -> Result<()> {
    let statements = bill.report.statements.iter().zip(bill.report.ages());
    let document = json!({
        "version": FORMAT_VERSION,
        "workload": workload_json(bill.workload),
        "month_seconds": bill.prices.month.as_secs(),
        "statements": statements.map(|(s, age)| statement_json(s, age)).collect::<Vec<_>>(),
        "advice": bill.report.advice.iter().map(advice_json).collect::<Vec<_>>(),
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    Ok(writeln!(out)?)
}

fn workload_json(workload: &Workload) -> Value {
    let reads_by_age: Vec<_> = workload
        .reads_by_age
        .iter()
        .map(|(age, share)| json!({"age_seconds": age.as_secs(), "share": share.to_string()}))
        .collect();
    json!({
        "objects": workload.objects,
        "size_bytes": workload.size_bytes,
        "kept_seconds": workload.kept.as_secs(),
        "over_seconds": workload.over.as_secs(),
        "puts": workload.puts,
        "gets": workload.gets,
        "lists": workload.lists,
        "read_bytes": workload.read_bytes,
        "leaving": workload.leaving.to_string(),
        "reads_by_age": reads_by_age,
        "short_lived": workload.short_lived.to_string(),
    })
}

fn statement_json(statement: &Statement, demote_after: Option<Duration>) -> Value {
    json!({
        "name": statement.name,
        "demote_after_seconds": demote_after.map(|age| age.as_secs()),
        "requests_usd": usd(statement.requests),
        "storage_usd": usd(statement.storage),
        "nodes_usd": usd(statement.nodes),
        "redis_nodes": statement.redis_nodes,
        "total_usd": usd(statement.total()),
        "transfer_usd": usd(statement.transfer),
        "total_with_transfer_usd": usd(statement.total_with_transfer()),
    })
}

fn advice_json(advice: &Advice) -> Value {
    json!({
        "hot": advice.hot.name(),
        "judged_age_seconds": advice.judged_age.as_secs(),
        "saved_usd": usd(advice.saved),
        "break_even_size_bytes": limit(advice.break_even_size),
        "break_even_age_seconds": limit(match advice.break_even_age {
            BreakEven::Never => BreakEven::Never,
            BreakEven::UpTo(age) => BreakEven::UpTo(age.as_secs()),
            BreakEven::Always => BreakEven::Always,
        }),
        "max_object_size_bytes": advice.max_object_size,
        "demote_after_seconds": advice.demote_after.as_secs(),
    })
}

fn usd(money: Money) -> Value {
    money.with_decimals(6).into()
}

/// A number, or `"never"`, or `"always"`.
fn limit(limit: BreakEven<u64>) -> Value {
    match limit {
        BreakEven::Never => "never".into(),
        BreakEven::UpTo(limit) => limit.into(),
        BreakEven::Always => "always".into(),
    }
}

fn shown<T>(limit: BreakEven<T>, show: impl Fn(T) -> String) -> String {
    match limit {
        BreakEven::Never => "never".to_owned(),
        BreakEven::UpTo(limit) => show(limit),
        BreakEven::Always => "always".to_owned(),
    }
}

/// A size in its largest unit, rounded down to a tenth.
fn rounded_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, bits)| bytes >> bits > 0) {
        Some((unit, bits)) => {
            let tenths = (u128::from(bytes) * 10) >> bits;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// A time in its largest unit, rounded down to a tenth.
fn rounded_time(time: Duration) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("min", 60)];
    let seconds = u128::from(time.as_secs());
    match units.into_iter().find(|(_, unit)| seconds >= *unit) {
        Some((name, unit)) => {
            let tenths = seconds * 10 / unit;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{seconds} s"),
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn grouped(number: u64) -> String {
    group(&number.to_string())
}

fn grouped_money(money: Money) -> String {
    let text = money.with_decimals(2);
    match text.split_once('.') {
        Some((dollars, cents)) => match dollars.strip_prefix('-') {
            Some(dollars) => format!("-{}.{cents}", group(dollars)),
            None => format!("{}.{cents}", group(dollars)),
        },
        None => text,
    }
}

/// Commas between thousands.
fn group(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
