//! `kill -9` of the server under load.

use std::sync::Arc;

use bytes::Bytes;
use forebay_native::index::{Applied, Batch, Expect, Index, Payload, Sequence, Want};

use crate::{eventually, open, put, route, servers::Server, slow};

/// A pair of entries of one route that change together.
fn pair(writer: usize, number: u64, before: Option<Sequence>) -> (Bytes, Batch) {
    let text = number.to_string();
    let names = ["a", "b"].map(|end| format!("writer-{writer}/{end}"));
    let first = Bytes::from(names[0].clone());
    let expect = before.map_or(Expect::Absent, Expect::At);
    let payload = Payload::Inline(text.clone().into());
    let changes = names
        .iter()
        .map(|name| put(name, &text, payload.clone()))
        .collect();
    let expects = vec![(first.clone(), expect)];
    (first, Batch { expects, changes })
}

/// Goal: with `appendfsync always`, what was acknowledged is there after `kill -9`, and no batch by
/// halves.
/// Method: writers count up in pairs of entries, each write expecting the one before; the server is
/// killed under load and started again; each pair is equal, and as far as acknowledged or one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_batches_survive_the_kill_of_the_server_whole() {
    let rounds = if slow() { 20 } else { 2 };
    let mut server = Server::start(&[]);
    let engine = open(&server.settings()).await;
    let mut counts = [0_u64; 8];
    for round in 0..rounds {
        let mut writers = tokio::task::JoinSet::new();
        for (writer, start) in counts.into_iter().enumerate() {
            let index = Arc::clone(engine.index());
            writers.spawn(async move {
                let route = route(&format!("writer-{writer}"));
                let name = format!("writer-{writer}/a");
                let there = index
                    .get(&route, name.as_bytes(), Want::Value)
                    .await
                    .expect("there");
                let mut before = there.map(|entry| entry.sequence);
                let mut acknowledged = start;
                loop {
                    let (_, batch) = pair(writer, acknowledged + 1, before);
                    match index.apply(&route, batch).await {
                        Ok(Applied::Done(sequence)) => before = Some(sequence),
                        Ok(unexpected) => panic!("{unexpected:?}"),
                        Err(_) => return (writer, acknowledged),
                    }
                    acknowledged += 1;
                }
            });
        }
        let enough = || fastrand::u64(50..200) + round;
        tokio::time::sleep(std::time::Duration::from_millis(enough())).await;
        server.kill();
        let written = writers.join_all().await;
        server.restart();
        eventually("it is back", async || {
            engine
                .index()
                .get(&route("x"), b"x", Want::Value)
                .await
                .is_ok()
        })
        .await;
        for (writer, acknowledged) in written {
            let mut found = Vec::new();
            for end in ["a", "b"] {
                let name = format!("writer-{writer}/{end}");
                let at = route(&format!("writer-{writer}"));
                let entry = engine
                    .index()
                    .get(&at, name.as_bytes(), Want::Payload)
                    .await;
                let number = entry.expect("an answer").map_or(0, |entry| {
                    assert_eq!(entry.payload.as_ref(), Some(&entry.value));
                    std::str::from_utf8(&entry.value)
                        .expect("text")
                        .parse()
                        .expect("a number")
                });
                found.push(number);
            }
            let may_be = acknowledged..=acknowledged + 1;
            assert_eq!(found[0], found[1], "writer {writer}, round {round}");
            assert!(
                may_be.contains(&found[0]),
                "writer {writer}: {found:?} of {acknowledged}"
            );
            counts[writer] = found[0];
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
