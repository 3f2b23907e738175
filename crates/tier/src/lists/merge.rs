//! Two ordered sequences into one page: what the hot store says of a key counts, then the cold one.
//!
//! Pure but for the two cursors, which fetch more when they run out.

use std::collections::VecDeque;

use async_trait::async_trait;
use forebay_native::listing::{
    Summary,
    position::{Position, rolled_up},
};
use forebay_store::Error;

/// What the hot store says of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HotSays {
    /// There is an object.
    Object(Summary),
    /// There is none.
    Gone,
    /// Whatever the cold store has; the tag that it had when it was last told, if it was.
    AskCold(Option<String>),
}

/// What is on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// An object: its key, and what is told of it.
    Object(String, Told),
    /// A common prefix, as it is written into the page if it came so.
    Prefix(String, Option<String>),
}

/// What is told of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// As the cold store writes it, and its tag.
    Raw(String, Option<String>),
    /// As the hot store knows it.
    Hot(Summary),
}

impl Item {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Object(name, _) | Self::Prefix(name, _) => name,
        }
    }

    /// The place just after it.
    pub(crate) fn position(&self) -> Position {
        match self {
            Self::Object(key, _) => Position::After(key.clone()),
            Self::Prefix(prefix, _) => Position::Past(prefix.clone()),
        }
    }
}

/// Gives more of a sequence.
#[async_trait]
pub(crate) trait Source: Send {
    /// What it gives.
    type Of: Send;

    /// The next of them after the last that it gave; none at the end.
    async fn more(&mut self) -> Result<VecDeque<Self::Of>, Error>;

    /// Whether it is known that nothing follows.
    fn is_at_end(&self) -> bool;

    /// Goes on just after all keys that begin so.
    fn skip(&mut self, prefix: &str);
}

/// A source and what it has given.
pub(crate) struct Cursor<S: Source> {
    source: S,
    ready: VecDeque<S::Of>,
    is_done: bool,
}

impl<S: Source> Cursor<S> {
    pub(crate) fn new(source: S) -> Self {
        Self {
            source,
            ready: VecDeque::new(),
            is_done: false,
        }
    }

    /// Fetches if nothing is ready.
    pub(crate) async fn fill(&mut self) -> Result<(), Error> {
        if self.ready.is_empty() && !self.is_done {
            self.ready = self.source.more().await?;
            self.is_done = self.ready.is_empty() || self.source.is_at_end();
        }
        Ok(())
    }

    async fn peek(&mut self) -> Result<Option<&S::Of>, Error> {
        self.fill().await?;
        Ok(self.ready.front())
    }

    fn pop(&mut self) -> Option<S::Of> {
        self.ready.pop_front()
    }

    /// The source itself.
    pub(crate) fn into_source(self) -> S {
        self.source
    }
}

/// What of a bucket's keys is on the page.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) prefix: String,
    pub(crate) delimiter: Option<String>,
    pub(crate) entries_max: usize,
}

/// A page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    pub(crate) items: Vec<Item>,
    /// Whether there is, or may be, more.
    pub(crate) is_truncated: bool,
    /// Whether the hot store had a say.
    pub(crate) is_mixed: bool,
    /// Whether a key that went from hot to cold may have been missed on both sides.
    pub(crate) has_gap: bool,
}

/// Says whether anything is left under a common prefix of the cold store of which the hot store
/// has deleted keys.
#[async_trait]
pub(crate) trait Lives: Send + Sync {
    async fn lives(&self, prefix: &str) -> Result<bool, Error>;
}

/// What a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Key,
    Common,
}

/// What the hot store says of all keys that are rolled up to one common prefix.
#[derive(Debug, Default)]
struct Under {
    has_object: bool,
    has_gone: bool,
    has_moved: bool,
}

/// Makes a page.
pub(crate) async fn merge<H, C, L>(
    hot: &mut Cursor<H>,
    cold: &mut Cursor<C>,
    lives: &L,
    terms: &Terms,
) -> Result<Merged, Error>
where
    H: Source<Of = (String, HotSays)>,
    C: Source<Of = Item>,
    L: Lives,
{
    let mut page = Merged::default();
    let delimiter = terms.delimiter.as_deref();
    loop {
        if page.items.len() == terms.entries_max {
            // What follows in the cold store may turn out to be deleted: an empty page is cheaper
            // than to fetch it now.
            let cold_has_more = !cold.ready.is_empty() || !cold.source.is_at_end();
            page.is_truncated = cold_has_more;
            if !cold_has_more && hot.has_object().await? {
                // The cold store does not know that there is more.
                page.is_truncated = true;
                page.is_mixed = true;
            }
            return Ok(page);
        }
        let hot_name =
            hot.peek()
                .await?
                .map(|(key, _)| match rolled_up(key, &terms.prefix, delimiter) {
                    Some(common) => (common.to_owned(), Of::Common),
                    None => (key.clone(), Of::Key),
                });
        let cold_name = cold.peek().await?.map(|item| item.name().to_owned());
        match (hot_name, cold_name) {
            (None, None) => return Ok(page),
            (None, Some(_)) => page.items.extend(cold.pop()),
            (Some((name, _)), Some(other)) if other < name => page.items.extend(cold.pop()),
            (Some((name, of)), other) => {
                let is_in_cold = other.as_ref() == Some(&name);
                let of_cold = if is_in_cold { cold.pop() } else { None };
                let item = match of {
                    Of::Key => one_key(hot.pop(), of_cold, &mut page),
                    Of::Common => common_prefix(&name, hot, of_cold, lives, &mut page).await?,
                };
                page.items.extend(item);
            }
        }
    }
}

/// One key that the hot store has a record of.
fn one_key(
    of_hot: Option<(String, HotSays)>,
    of_cold: Option<Item>,
    page: &mut Merged,
) -> Option<Item> {
    let (key, says) = of_hot?;
    match says {
        HotSays::Object(told) => {
            page.is_mixed = true;
            Some(Item::Object(key, Told::Hot(told)))
        }
        HotSays::Gone => {
            page.is_mixed = true;
            None
        }
        HotSays::AskCold(expected) => {
            // What the cold store told may be from before it had the object.
            page.has_gap |= match &of_cold {
                Some(Item::Object(_, Told::Raw(_, etag))) => {
                    expected.is_some() && *etag != expected
                }
                Some(Item::Object(..) | Item::Prefix(..)) => false,
                None => true,
            };
            of_cold
        }
    }
}

/// A common prefix under which the hot store has records.
async fn common_prefix<H, L>(
    name: &str,
    hot: &mut Cursor<H>,
    of_cold: Option<Item>,
    lives: &L,
    page: &mut Merged,
) -> Result<Option<Item>, Error>
where
    H: Source<Of = (String, HotSays)>,
    L: Lives,
{
    let mut under = Under::default();
    while let Some((key, says)) = hot.peek().await? {
        if !key.starts_with(name) {
            break;
        }
        match says {
            HotSays::Object(_) => under.has_object = true,
            HotSays::Gone => under.has_gone = true,
            HotSays::AskCold(_) => under.has_moved = true,
        }
        if under.has_object {
            break;
        }
        hot.pop();
    }
    hot.skip(name);
    page.is_mixed |= under.has_object || under.has_gone;
    if under.has_object {
        let raw = of_cold.and_then(|item| match item {
            Item::Prefix(_, raw) => raw,
            Item::Object(..) => None,
        });
        return Ok(Some(Item::Prefix(name.to_owned(), raw)));
    }
    page.has_gap |= under.has_moved && of_cold.is_none();
    match of_cold {
        Some(item) if under.has_gone => Ok(lives.lives(name).await?.then_some(item)),
        other => Ok(other),
    }
}

impl<S: Source<Of = (String, HotSays)>> Cursor<S> {
    /// Whether an object follows.
    async fn has_object(&mut self) -> Result<bool, Error> {
        while let Some((_, says)) = self.peek().await? {
            if let HotSays::Object(_) = says {
                return Ok(true);
            }
            self.pop();
        }
        Ok(false)
    }

    /// Goes on just after all keys that begin so.
    fn skip(&mut self, prefix: &str) {
        while self
            .ready
            .front()
            .is_some_and(|(key, _)| key.starts_with(prefix))
        {
            self.ready.pop_front();
        }
        if self.ready.is_empty() {
            self.source.skip(prefix);
        }
    }
}
