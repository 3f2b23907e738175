//! The contracts of index, blobs and leases, on one server and on a cluster.

use std::{sync::Arc, time::Duration};

use forebay_native::contract;

use forebay_native::Settings;
use forebay_redis::RedisStore;
use forebay_store::{Clock, Store};

use crate::{
    open,
    servers::{Cluster, Server},
};

/// The server's clock is the one that counts, and it can't be told to go faster.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_keeps_the_contract_of_an_index() {
    let server = Server::start_with(&["--appendonly", "yes"]);
    let engine = open(&server.settings()).await;
    contract::index(async || Arc::clone(engine.index())).await;
    let open_again = async || Arc::clone(open(&server.settings()).await.index());
    contract::index_reopened(open_again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_keeps_the_contracts_of_blobs_and_leases() {
    let server = Server::start_with(&["--appendonly", "yes"]);
    let engine = open(&server.settings()).await;
    contract::blobs(async || Arc::clone(engine.blobs())).await;
    contract::blobs_reopened(async || Arc::clone(open(&server.settings()).await.blobs())).await;
    contract::leases(async || Arc::clone(engine.leases()), pass).await;
    contract::leases_reopened(async || Arc::clone(open(&server.settings()).await.leases())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_the_contracts() {
    let cluster = Cluster::start().await;
    let engine = open(&cluster.settings()).await;
    contract::index(async || Arc::clone(engine.index())).await;
    contract::blobs(async || Arc::clone(engine.blobs())).await;
    contract::leases(async || Arc::clone(engine.leases()), pass).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_on_one_server_keep_the_contract_of_stores() {
    let server = Server::start_with(&["--appendonly", "yes"]);
    let engine = open(&server.settings()).await;
    let store = Arc::new(RedisStore::over(
        engine,
        Settings::default(),
        Clock::system(),
    ));
    forebay_store::contract::check(async || Arc::clone(&store) as Arc<dyn Store>).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_on_a_cluster_keep_the_contract_of_stores() {
    let cluster = Cluster::start().await;
    let engine = open(&cluster.settings()).await;
    let store = Arc::new(RedisStore::over(
        engine,
        Settings::default(),
        Clock::system(),
    ));
    forebay_store::contract::check(async || Arc::clone(&store) as Arc<dyn Store>).await;
}
