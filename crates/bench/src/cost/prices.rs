//! The price book: what storing, asking, renting and moving cost.
//!
//! Pure: text in, [`Prices`] or all that is wrong with it out. [`BUILT_IN`] holds every key; a book
//! of the user overlays it, and `--set` overlays both.

use std::{collections::BTreeMap, time::Duration};

use super::money::Price;
use crate::{
    fault::{Fault, FaultyInput},
    quantity::{Decimal, SHARE_ALLOWED, SIZE_ALLOWED, Share, TIME_ALLOWED, parse_size, parse_time},
};

/// The built-in book.
pub const BUILT_IN: &str = include_str!("../../prices.toml");

const GIB: u128 = 1 << 30;
const GB: u128 = 1_000_000_000;

/// What prices there are. Storage is priced by the byte and second, transfer by the byte, requests
/// by the request, nodes by the second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices {
    /// Length of the month of "GiB-month".
    pub month: Duration,
    /// S3 Standard.
    pub s3: StorePrices,
    /// S3 Express One Zone.
    pub express: StorePrices,
    /// Redis nodes.
    pub redis: NodePrices,
    /// Disk under Forebay's hot store.
    pub disk_storage: Price,
    /// Bytes that leave the region.
    pub transfer_out: Price,
    /// The machine that Forebay runs on.
    pub gateway_node: Price,
}

/// A store that is paid by use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePrices {
    /// A byte for a second.
    pub storage: Price,
    /// A request that writes.
    pub put: Price,
    /// A request that lists.
    pub list: Price,
    /// A request that reads.
    pub get: Price,
    /// A byte written.
    pub upload: Price,
    /// A byte read.
    pub retrieval: Price,
}

/// A store that is rented by the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePrices {
    /// A node for a second.
    pub node: Price,
    /// Bytes of a node that objects may fill.
    pub usable_bytes: u64,
    /// Shortest time that a node is paid for.
    pub rented_min: Duration,
}

/// What the value of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Storage,
    Bytes,
    Requests,
    Node,
    Time,
    Size,
    Share,
}

/// Every key of a book, in its order.
const KEYS: [(&str, Kind); 18] = [
    ("month", Kind::Time),
    ("s3.storage", Kind::Storage),
    ("s3.put", Kind::Requests),
    ("s3.list", Kind::Requests),
    ("s3.get", Kind::Requests),
    ("express.storage", Kind::Storage),
    ("express.put", Kind::Requests),
    ("express.list", Kind::Requests),
    ("express.get", Kind::Requests),
    ("express.upload", Kind::Bytes),
    ("express.retrieval", Kind::Bytes),
    ("redis.node", Kind::Node),
    ("redis.memory", Kind::Size),
    ("redis.usable", Kind::Share),
    ("redis.rented_min", Kind::Time),
    ("disk.storage", Kind::Storage),
    ("transfer.out", Kind::Bytes),
    ("gateway.node", Kind::Node),
];

impl Kind {
    /// The units that a price may be per, and how many of ours each is.
    fn units(self, month: Duration) -> Vec<(&'static str, u128)> {
        let seconds = u128::from(month.as_secs());
        match self {
            Self::Storage => vec![("GiB-month", GIB * seconds), ("GB-month", GB * seconds)],
            Self::Bytes => vec![("GiB", GIB), ("GB", GB)],
            Self::Requests => vec![
                ("1000 requests", 1_000),
                ("1000000 requests", 1_000_000),
                ("request", 1),
            ],
            Self::Node => vec![("hour", 3_600)],
            Self::Time | Self::Size | Self::Share => Vec::new(),
        }
    }

    fn allowed(self, month: Duration) -> String {
        match self {
            Self::Time => TIME_ALLOWED.to_owned(),
            Self::Size => SIZE_ALLOWED.to_owned(),
            Self::Share => SHARE_ALLOWED.to_owned(),
            Self::Storage | Self::Bytes | Self::Requests | Self::Node => {
                let units = self.units(month);
                let names: Vec<_> = units.iter().map(|(unit, _)| *unit).collect();
                format!("an amount in USD per {}", names.join(" or per "))
            }
        }
    }
}

/// A book and a set of changes to it, as they were written.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The user's book: its name and its text.
    pub book: Option<(&'a str, &'a str)>,
    /// `KEY=VALUE` of `--set`.
    pub changes: &'a [String],
}

impl Prices {
    /// Reads the built-in book, the user's over it, and the changes over both.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn load(sources: Sources<'_>) -> Result<Self, FaultyInput> {
        let mut faults = Vec::new();
        let mut texts = BTreeMap::new();
        read_book("the built-in prices", BUILT_IN, &mut texts, &mut faults);
        if let Some((name, text)) = sources.book {
            read_book(name, text, &mut texts, &mut faults);
        }
        for change in sources.changes {
            match change.split_once('=') {
                Some((key, value)) => {
                    keep(key.trim(), value.trim(), &mut texts, &mut faults);
                }
                None => faults.push(Fault {
                    key: "--set".to_owned(),
                    value: format!("{change:?}"),
                    allowed: "KEY=VALUE".to_owned(),
                    remedy: "write it like --set 's3.put=0.005 USD per 1000 requests'".to_owned(),
                }),
            }
        }
        let prices = read_prices(&texts, &mut faults);
        match prices {
            Some(prices) if faults.is_empty() => Ok(prices),
            _ => Err(FaultyInput {
                input: match sources.book {
                    Some((name, _)) => format!("the prices of {name}"),
                    None => "the prices".to_owned(),
                },
                faults,
            }),
        }
    }
}

/// Takes the keys of a book over.
fn read_book(
    name: &str,
    text: &str,
    texts: &mut BTreeMap<String, String>,
    faults: &mut Vec<Fault>,
) {
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            faults.push(Fault {
                key: name.to_owned(),
                value: "no TOML".to_owned(),
                allowed: "a price book, as --print-prices prints one".to_owned(),
                remedy: error.to_string().trim_end().replace('\n', "\n           "),
            });
            return;
        }
    };
    for (section, value) in table {
        match value {
            toml::Value::Table(inner) => {
                for (key, value) in inner {
                    keep(&format!("{section}.{key}"), &shown(&value), texts, faults);
                }
            }
            value => keep(&section, &shown(&value), texts, faults),
        }
    }
}

/// A value as text; what is no text is a fault of its kind later on.
fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn keep(key: &str, value: &str, texts: &mut BTreeMap<String, String>, faults: &mut Vec<Fault>) {
    let is_known = KEYS.iter().any(|(known, _)| *known == key);
    if is_known {
        texts.insert(key.to_owned(), value.to_owned());
        return;
    }
    let keys: Vec<_> = KEYS.iter().map(|(key, _)| *key).collect();
    faults.push(Fault {
        key: key.to_owned(),
        value: format!("{value:?}"),
        allowed: keys.join(", "),
        remedy: "take it out, or name one of these".to_owned(),
    });
}

fn read_prices(texts: &BTreeMap<String, String>, faults: &mut Vec<Fault>) -> Option<Prices> {
    let mut reader = Reader {
        texts,
        faults,
        month: Duration::ZERO,
    };
    let month = reader.time("month");
    // Whatever is wrong with the month is told once; the other keys are read with any month.
    reader.month = month.unwrap_or(Duration::from_hours(730));
    let s3 = reader.store("s3");
    let express = reader.store("express");
    let redis = reader.nodes();
    let disk_storage = reader.price("disk.storage", Kind::Storage);
    let transfer_out = reader.price("transfer.out", Kind::Bytes);
    let gateway_node = reader.price("gateway.node", Kind::Node);
    Some(Prices {
        month: month?,
        s3: s3?,
        express: express?,
        redis: redis?,
        disk_storage: disk_storage?,
        transfer_out: transfer_out?,
        gateway_node: gateway_node?,
    })
}

struct Reader<'a> {
    texts: &'a BTreeMap<String, String>,
    faults: &'a mut Vec<Fault>,
    month: Duration,
}

impl Reader<'_> {
    fn text(&self, key: &str) -> &str {
        self.texts.get(key).map_or("", String::as_str)
    }

    fn refuse<T>(&mut self, key: &str, kind: Kind, remedy: &str) -> Option<T> {
        self.faults.push(Fault {
            key: key.to_owned(),
            value: format!("{:?}", self.text(key)),
            allowed: kind.allowed(self.month),
            remedy: remedy.to_owned(),
        });
        None
    }

    fn price(&mut self, key: &str, kind: Kind) -> Option<Price> {
        let units = kind.units(self.month);
        let price = self
            .text(key)
            .split_once(" per ")
            .and_then(|(amount, unit)| {
                let dollars = Decimal::parse(amount.trim().strip_suffix("USD")?.trim())?;
                let (_, per) = units.iter().find(|(name, _)| *name == unit.trim())?;
                Price::new(dollars, *per)
            });
        price.or_else(|| {
            let unit = units.first().map_or("", |(unit, _)| *unit);
            self.refuse(key, kind, &format!("write it like \"0.01 USD per {unit}\""))
        })
    }

    fn time(&mut self, key: &str) -> Option<Duration> {
        match parse_time(self.text(key)) {
            Some(time) if time.as_secs() > 0 => Some(time),
            _ => self.refuse(key, Kind::Time, "write it like \"730h\", a second at least"),
        }
    }

    fn store(&mut self, name: &str) -> Option<StorePrices> {
        let key = |what: &str| format!("{name}.{what}");
        let storage = self.price(&key("storage"), Kind::Storage);
        let put = self.price(&key("put"), Kind::Requests);
        let list = self.price(&key("list"), Kind::Requests);
        let get = self.price(&key("get"), Kind::Requests);
        // S3 Standard takes nothing for bytes.
        let mut of_bytes = |what| {
            let is_there = KEYS.iter().any(|(known, _)| *known == key(what));
            if is_there {
                self.price(&key(what), Kind::Bytes)
            } else {
                Price::new(
                    Decimal {
                        mantissa: 0,
                        scale: 0,
                    },
                    1,
                )
            }
        };
        let (upload, retrieval) = (of_bytes("upload"), of_bytes("retrieval"));
        Some(StorePrices {
            storage: storage?,
            put: put?,
            list: list?,
            get: get?,
            upload: upload?,
            retrieval: retrieval?,
        })
    }

    fn nodes(&mut self) -> Option<NodePrices> {
        let node = self.price("redis.node", Kind::Node);
        let memory = parse_size(self.text("redis.memory"))
            .filter(|bytes| *bytes > 0)
            .or_else(|| self.refuse("redis.memory", Kind::Size, "write it like \"26.32GiB\""));
        let usable = Share::parse(self.text("redis.usable"))
            .filter(|share| *share > Share::NONE)
            .or_else(|| self.refuse("redis.usable", Kind::Share, "write it like \"75%\""));
        let rented_min = self.time("redis.rented_min");
        let usable_bytes =
            u128::from(memory?) * u128::from(usable?.parts_per_million()) / 1_000_000;
        Some(NodePrices {
            node: node?,
            usable_bytes: u64::try_from(usable_bytes.max(1)).ok()?,
            rented_min: rented_min?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(book: &str, changes: &[&str]) -> Result<Prices, FaultyInput> {
        let changes: Vec<_> = changes.iter().map(|c| (*c).to_owned()).collect();
        Prices::load(Sources {
            book: Some(("a test", book)),
            changes: &changes,
        })
    }

    #[test]
    fn the_built_in_book_is_whole_and_gives_each_key_once() {
        let prices = load("", &[]).unwrap();
        assert_eq!(prices.s3.put.of(1000).unwrap().to_string(), "0.01");
        assert_eq!(
            prices.redis.node.of(3600 * 730).unwrap().to_string(),
            "314.63"
        );
        let gib_month = GIB * u128::from(prices.month.as_secs());
        assert_eq!(
            prices.s3.storage.of(gib_month * 1000).unwrap().to_string(),
            "23.00"
        );
        assert_eq!(prices.redis.usable_bytes, 28_260_884_807 / 4 * 3 + 2);
    }

    #[test]
    fn a_change_outranks_the_users_book_which_outranks_the_built_in_one() {
        let book = "[s3]\nput = \"1 USD per request\"\nget = \"2 USD per request\"\n";
        let prices = load(book, &["s3.get=3 USD per request"]).unwrap();
        let of = |price: Price| price.of(1).unwrap().to_string();
        assert_eq!(of(prices.s3.put), "1.00");
        assert_eq!(of(prices.s3.get), "3.00");
        assert_eq!(prices.s3.list, load("", &[]).unwrap().s3.list);
    }

    #[test]
    fn every_fault_is_told_at_once_with_key_value_and_remedy() {
        let book = "mnth = \"730h\"\n\
            [s3]\nput = \"0.005 EUR per 1000 requests\"\nget = 0.0004\n\
            storage = \"0.023 USD per GB\"\n\
            [redis]\nmemory = \"26\"\nusable = \"750%\"\n[glacier]\nput = \"1 USD per request\"\n";
        let faulty = load(book, &["disk.storage", "month=0"]).unwrap_err();
        let told: Vec<_> = faulty
            .faults
            .iter()
            .map(|f| (f.key.as_str(), f.value.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("glacier.put", "\"1 USD per request\""),
                ("mnth", "\"730h\""),
                ("--set", "\"disk.storage\""),
                ("month", "\"0\""),
                ("s3.storage", "\"0.023 USD per GB\""),
                ("s3.put", "\"0.005 EUR per 1000 requests\""),
                ("s3.get", "\"0.0004\""),
                ("redis.memory", "\"26\""),
                ("redis.usable", "\"750%\""),
            ]
        );
        assert!(
            faulty
                .faults
                .iter()
                .all(|f| !f.remedy.is_empty() && !f.allowed.is_empty())
        );
        assert!(
            faulty
                .to_string()
                .starts_with("9 faults in the prices of a test")
        );
    }

    #[test]
    fn a_book_that_is_no_toml_says_where() {
        let faulty = load("[s3\n", &[]).unwrap_err();
        assert!(faulty.to_string().contains("line 1"), "{faulty}");
    }
}
