//! Mirrors: made of stores that are there already, with a journal in one of them.

use std::{collections::BTreeMap, sync::Arc};

use forebay_mirror::{MirrorParts, MirrorStore};
use forebay_store::Store;
use forebay_telemetry::mirror::MirrorMetrics;
use prometheus_client::registry::Registry;

use super::{Components, engines::Engines, holder};
use crate::{
    admin::Mirror,
    config::{Config, MirrorConfig},
};

/// Makes every mirror of the config, and puts it beside the other stores.
///
/// # Panics
/// When a member or a journal is not there; the config's check lets none pass.
pub(super) fn make_mirrors<'a>(
    config: &'a Config,
    (stores, engines): (&mut BTreeMap<&'a str, Arc<dyn Store>>, &Engines),
    (components, registry): (Components<'_>, &mut Registry),
) -> Vec<Mirror> {
    let mut made = Vec::new();
    for (name, store) in &config.stores {
        let Some(mirror) = store.mirror() else {
            continue;
        };
        let metrics = MirrorMetrics::new();
        let label = ("store".into(), name.clone().into());
        let registry = registry.sub_registry_with_prefix("forebay");
        metrics.register(registry.sub_registry_with_label(label));
        let parts = parts_of(mirror, (stores, engines), (components, metrics));
        let store = MirrorStore::new(parts, mirror.settings.clone());
        made.push(Mirror {
            name: name.clone(),
            journal: mirror.journal.clone(),
            space: mirror.space.as_str().to_owned(),
            operator: store.operator(),
            repairer: store.repairer(),
        });
        stores.insert(name, Arc::new(store));
    }
    made
}

fn parts_of(
    mirror: &MirrorConfig,
    (stores, engines): (&BTreeMap<&str, Arc<dyn Store>>, &Engines),
    (components, metrics): (Components<'_>, MirrorMetrics),
) -> MirrorParts {
    let members = mirror.members.iter().map(|member| {
        let store = stores.get(&**member);
        let store = store.expect("the check has found every member");
        (member.clone(), Arc::clone(store))
    });
    let (journal, gateways) = engines.journal(&mirror.journal, components.clock);
    MirrorParts {
        members: members.collect(),
        journal,
        space: mirror.space.clone(),
        gateways,
        clock: components.clock.clone(),
        budget: components.budget.clone(),
        metrics,
        holder: holder(),
    }
}
