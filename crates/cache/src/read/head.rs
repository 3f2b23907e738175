//! Reads of headers alone: they are the client's own requests, nobody else waits for them.

use std::sync::Arc;

use forebay_store::{Error, Response};

use super::{Reading, Try, lacks_checksums};
use crate::{
    answer,
    ask::{Ask, Template},
    headers::Behind,
    layer::Layer,
    plan::Method,
    version::{self, Learned, Told, Version},
};

/// What a HEAD brought.
pub(crate) struct Heard {
    pub answer: Result<Response, Error>,
    /// The version that it is of, if that may be kept.
    pub found: Option<Version>,
    /// What it tells of the stored version.
    pub told: Told,
}

/// Asks for headers, unless they are those of `stale`.
pub(crate) async fn ask(layer: &Layer, template: &Template, stale: Option<&Arc<Version>>) -> Heard {
    let asking = stale.map_or(Ask::AsTheClient, |stale| Ask::Unless(stale));
    hear(layer, template, asking, stale).await
}

async fn hear(
    layer: &Layer,
    template: &Template,
    asking: Ask<'_>,
    stored: Option<&Arc<Version>>,
) -> Heard {
    let object = template.object();
    let mut asked = layer.asked(object, layer.index.stamp(object));
    if let Some(stored) = stored {
        // What is learned is compared with it.
        asked.generation = stored.generation;
    }
    let answer = layer.inner.call(template.head(asking)).await;
    let learned = answer.as_ref().ok().and_then(|response| {
        version::learn(Method::Head, object, asked, response, &layer.policies)
    });
    let found = learned.map(|Learned { version, .. }| version);
    let told = stored.map_or(Told::Nothing, |stored| {
        layer.validate(stored, asked, &answer, found.as_ref())
    });
    Heard {
        answer,
        found,
        told,
    }
}

impl Reading {
    /// Asks for the headers alone.
    pub(super) async fn ask_head(&mut self, stale: Option<Arc<Version>>) -> Result<Try, Error> {
        let layer = Arc::clone(&self.layer);
        let heard = ask(&layer, &self.template, stale.as_ref()).await;
        let Heard {
            answer,
            found,
            told,
        } = heard;
        self.forward_status = version::status(&answer).map(|status| status.as_u16());
        self.behind = Behind::of(&answer);
        self.validated = true;
        if let Some(stale) = &stale {
            if told == Told::Unchanged && lacks_checksums(&self.plan, stale) {
                return self.complete(stale).await;
            }
            if told == Told::Unchanged {
                return self.answer(Arc::clone(stale), None).await;
            }
            if told == Told::Failed
                && let Some(response) = self.if_error(stale)
            {
                return Ok(Try::Done(response));
            }
        }
        let Some(version) = found else {
            return Ok(Try::Done(answer::adapt(&self.plan, answer?)));
        };
        let version = Arc::new(version);
        layer.keep_record(&version);
        self.answer(version, None).await
    }

    /// Learns the checksums of a version that is known from a range alone.
    pub(super) async fn complete(&mut self, known: &Arc<Version>) -> Result<Try, Error> {
        let layer = Arc::clone(&self.layer);
        let heard = hear(&layer, &self.template, Ask::Anyway, Some(known)).await;
        let Some(version) = heard.found else {
            return Ok(Try::AskAsIs);
        };
        let version = match &known.page {
            Some(page) if known.vid == version.vid => version.with_page(page.clone()),
            _ => version,
        };
        let version = Arc::new(version);
        layer.keep_record(&version);
        self.validated = true;
        self.answer(version, None).await
    }
}
