//! What a tap does to real connections: a scripted server behind it, a client of bare bytes before
//! it.

use std::{future::Future, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::{Counts, FaultTexts, Faults, Settings, Tap};

/// Far beyond what a busy machine takes; a test that gets here hangs.
const PATIENCE: Duration = Duration::from_mins(1);

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("it hangs")
}

/// A server that runs `script` on each connection and tells what it returns.
struct Server<T> {
    address: SocketAddr,
    results: mpsc::UnboundedReceiver<T>,
    task: JoinHandle<()>,
}

impl<T: Send + 'static> Server<T> {
    async fn start<F, R>(script: F) -> Self
    where
        F: Fn(TcpStream) -> R + Send + 'static,
        R: Future<Output = T> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, results) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                let (running, sender) = (script(connection), sender.clone());
                tokio::spawn(async move { sender.send(running.await) });
            }
        });
        Self {
            address,
            results,
            task,
        }
    }
}

impl<T> Drop for Server<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads requests without bodies and answers each with `answer`, until the client ends.
async fn answer_each(mut connection: TcpStream, answer: Vec<u8>) -> usize {
    let (mut input, mut count) = (Vec::new(), 0);
    loop {
        while let Some(end) = input.windows(4).position(|w| w == b"\r\n\r\n") {
            input.drain(..end + 4);
            count += 1;
            if connection.write_all(&answer).await.is_err() {
                return count;
            }
        }
        match connection.read_buf(&mut input).await {
            Ok(0) | Err(_) => return count,
            Ok(_) => {}
        }
    }
}

async fn serving(answer: impl Into<Vec<u8>>) -> Server<usize> {
    let answer = answer.into();
    Server::start(move |connection| answer_each(connection, answer.clone())).await
}

fn sized(body_bytes: usize) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n").into_bytes();
    answer.extend((0..=250).cycle().take(body_bytes));
    answer
}

fn faults(texts: &FaultTexts) -> Faults {
    Faults::check(texts, "a test").unwrap()
}

fn all() -> String {
    "100%".to_owned()
}

async fn tap(to: SocketAddr, texts: FaultTexts) -> Tap {
    let settings = Settings {
        faults: faults(&texts),
        seed: 7,
        ..Settings::new(to.to_string())
    };
    Tap::start(settings).await.unwrap()
}

const GET: &[u8] = b"GET /b/k HTTP/1.1\r\nHost: h\r\n\r\n";

/// Sends `sent`, ends, and reads what comes until the end: the bytes, and whether it was an end.
async fn exchange(address: SocketAddr, sent: &[u8]) -> (Vec<u8>, bool) {
    let mut client = TcpStream::connect(address).await.unwrap();
    let mut received = Vec::new();
    if client.write_all(sent).await.is_err() || client.shutdown().await.is_err() {
        return (received, false);
    }
    let ended = soon(client.read_to_end(&mut received)).await.is_ok();
    (received, ended)
}

async fn read_exactly(client: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    soon(client.read_exact(&mut bytes)).await.unwrap();
    bytes
}

/// Goal: what the tap tells is what was sent, for every way of framing a message.
/// Method: one connection, pipelined; the server writes one scripted text, so that both ends know
/// each byte.
#[tokio::test]
async fn counts_are_the_bytes_really_sent() {
    let asked: &[&[u8]] = &[
        GET,
        b"HEAD /b/k HTTP/1.1\r\nHost: h\r\n\r\n",
        b"PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        b"PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
          3\r\nabc\r\n4;x=1\r\ndefg\r\n0\r\nx-t: 1\r\n\r\n",
        b"PUT /b/k HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
        b"DELETE /b/k HTTP/1.1\r\nHost: h\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        GET,
        GET,
    ];
    let answered: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 405 No\r\nContent-Length: 1\r\n\r\nn",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    ];
    let (asked, answered) = (asked.concat(), answered.concat());
    let script = answered.clone();
    let mut server = Server::start(move |mut connection| {
        let script = script.clone();
        async move {
            let mut received = Vec::new();
            connection.read_to_end(&mut received).await.unwrap();
            connection.write_all(&script).await.unwrap();
            received
        }
    })
    .await;
    let tap = tap(server.address, FaultTexts::default()).await;

    let (received, ended) = exchange(tap.address(), &asked).await;
    assert!(ended);
    assert!(
        received == answered,
        "{}",
        String::from_utf8_lossy(&received)
    );
    assert!(soon(server.results.recv()).await.unwrap() == asked);

    let counts = soon(tap.stop()).await;
    let expected = Counts {
        requests: 9,
        requests_by_method: [
            ("GET", 3),
            ("HEAD", 1),
            ("PUT", 3),
            ("DELETE", 1),
            ("other", 1),
        ]
        .map(|(method, count)| (method.to_owned(), count))
        .into(),
        responses: [(100, 1), (200, 5), (204, 1), (304, 1), (400, 1), (405, 1)].into(),
        bytes_to_client: answered.len() as u64,
        bytes_to_server: asked.len() as u64,
        body_bytes_to_client: 4 + 2 + 1 + 13,
        body_bytes_to_server: 5 + 7 + 2,
        connections: 1,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
}

#[tokio::test]
async fn a_message_is_followed_however_the_network_cuts_it() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let server = serving(answer).await;
    let tap = tap(server.address, FaultTexts::default()).await;
    let mut client = TcpStream::connect(tap.address()).await.unwrap();
    client.set_nodelay(true).unwrap();
    for byte in GET {
        client.write_all(&[*byte]).await.unwrap();
        // Lets the relay read, so that many of the bytes come alone.
        tokio::task::yield_now().await;
    }
    read_exactly(&mut client, answer.len()).await;
    client.write_all(GET).await.unwrap();
    read_exactly(&mut client, answer.len()).await;
    let counts = tap.counts();
    assert_eq!((counts.requests, counts.connections_opaque), (2, 0));
    assert_eq!(counts.body_bytes_to_client, 2);
}

#[tokio::test]
async fn what_is_no_http_passes_opaquely_and_is_counted_in_bytes() {
    let mut server = Server::start(|mut connection: TcpStream| async move {
        let mut hello = [0; 7];
        connection.read_exact(&mut hello).await.unwrap();
        connection.write_all(b"\x16\x03\x03server").await.unwrap();
        hello
    })
    .await;
    let tap = tap(server.address, FaultTexts::default()).await;
    let (received, _) = exchange(tap.address(), b"\x16\x03\x01abcd").await;
    assert_eq!(received, b"\x16\x03\x03server");
    assert_eq!(
        &soon(server.results.recv()).await.unwrap(),
        b"\x16\x03\x01abcd"
    );
    let counts = soon(tap.stop()).await;
    assert_eq!((counts.bytes_to_server, counts.bytes_to_client), (7, 9));
    assert_eq!((counts.connections_opaque, counts.requests), (1, 0));
}

#[tokio::test]
async fn an_upgraded_connection_turns_opaque() {
    let server = Server::start(|mut connection: TcpStream| async move {
        let mut input = [0; 62];
        connection.read_exact(&mut input).await.unwrap();
        let accept = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
        connection.write_all(accept).await.unwrap();
        let mut echoed = [0; 4];
        connection.read_exact(&mut echoed).await.unwrap();
        connection.write_all(&echoed).await.unwrap();
    })
    .await;
    let tap = tap(server.address, FaultTexts::default()).await;
    let mut client = TcpStream::connect(tap.address()).await.unwrap();
    let ask = b"GET / HTTP/1.1\r\nHost: hhh\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    assert_eq!(ask.len(), 62);
    client.write_all(ask).await.unwrap();
    read_exactly(&mut client, 48).await;
    client.write_all(b"\0\x01\x02\x03").await.unwrap();
    assert_eq!(read_exactly(&mut client, 4).await, b"\0\x01\x02\x03");
    let counts = tap.counts();
    assert_eq!((counts.requests, counts.connections_opaque), (1, 1));
    assert_eq!(counts.responses, [(101, 1)].into());
}

#[tokio::test]
async fn a_delay_holds_back_first_bytes_side_by_side() {
    let server = serving(sized(10)).await;
    let delay = Duration::from_millis(300);
    let texts = FaultTexts {
        delay: Some("300ms".to_owned()),
        ..FaultTexts::default()
    };
    let tap = tap(server.address, texts).await;
    let count = 50;
    let began = Instant::now();
    let (received, _) = exchange(tap.address(), &GET.repeat(count)).await;
    let elapsed = began.elapsed();
    assert_eq!(received.len(), count * sized(10).len());
    assert!(elapsed >= delay, "{elapsed:?}");
    // One after the other they would take 15 s.
    assert!(elapsed < delay * 25, "{elapsed:?}");
}

#[tokio::test]
async fn a_delay_leaves_a_bodys_rate_alone() {
    let body_bytes = 16 << 20;
    let server = serving(sized(body_bytes)).await;
    let texts = FaultTexts {
        delay: Some("100ms".to_owned()),
        ..FaultTexts::default()
    };
    let tap = tap(server.address, texts).await;
    let began = Instant::now();
    let (received, _) = exchange(tap.address(), GET).await;
    assert!(received == sized(body_bytes));
    // A delay of each 128 KiB would make it 13 s.
    assert!(
        began.elapsed() < Duration::from_secs(7),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn bandwidth_is_limited_for_one_connection_and_for_all() {
    let server = serving(sized(200_000)).await;
    for (own, total, connections) in [(Some("1MB"), None, 1), (None, Some("1MB"), 3)] {
        let texts = FaultTexts {
            bandwidth: own.map(str::to_owned),
            bandwidth_total: total.map(str::to_owned),
            ..FaultTexts::default()
        };
        let tap = tap(server.address, texts).await;
        let began = Instant::now();
        let exchanges: Vec<_> = (0..connections)
            .map(|_| tokio::spawn(exchange(tap.address(), GET)))
            .collect();
        for exchange in exchanges {
            assert_eq!(exchange.await.unwrap().0.len(), sized(200_000).len());
        }
        // The last portion is not waited for, and some catching up is allowed.
        let least = Duration::from_millis(200 * connections - 70);
        assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_busy_tap_answers_in_turn_and_keeps_the_server_out_of_it() {
    let mut server = serving(sized(3)).await;
    let texts = FaultTexts {
        busy: Some("50%".to_owned()),
        ..FaultTexts::default()
    };
    let tap = tap(server.address, texts).await;
    let (received, ended) = exchange(tap.address(), &GET.repeat(40)).await;
    assert!(ended);
    let text = String::from_utf8_lossy(&received);
    let counts = soon(tap.stop()).await;
    let busy = text.matches("<Code>SlowDown</Code>").count();
    assert!((5..35).contains(&busy), "{busy}");
    assert_eq!(counts.faults.busy, busy as u64);
    assert_eq!(counts.requests, 40);
    assert_eq!(
        counts.responses,
        [(200, 40 - busy as u64), (503, busy as u64)].into()
    );
    assert_eq!(soon(server.results.recv()).await, Some(40 - busy));
    assert_eq!(counts.bytes_to_server, ((40 - busy) * GET.len()) as u64);
}

#[tokio::test]
async fn a_busy_tap_swallows_the_body_and_answers_the_expectant_at_once() {
    let server = serving(sized(3)).await;
    let texts = FaultTexts {
        busy: Some(all()),
        ..FaultTexts::default()
    };
    let tap = tap(server.address, texts).await;
    let puts = b"PUT /b/k HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcHEAD / HTTP/1.1\r\n\r\n";
    let (received, _) = exchange(tap.address(), puts).await;
    let text = String::from_utf8_lossy(&received);
    assert_eq!(text.matches("HTTP/1.1 503").count(), 2);
    assert_eq!(text.matches("<Error>").count(), 1, "a HEAD has no body");

    let mut client = TcpStream::connect(tap.address()).await.unwrap();
    let ask = b"PUT /b/k HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    client.write_all(ask).await.unwrap();
    let mut received = String::new();
    soon(client.read_to_string(&mut received)).await.unwrap();
    assert!(received.contains("Connection: close"), "{received}");
    assert_eq!(tap.counts().bytes_to_server, 0);
}

#[tokio::test]
async fn resets_strike_before_the_request_before_the_answer_and_in_the_body() {
    let whole = sized(1000);
    for kind in ["request", "answer", "body"] {
        let mut server = serving(whole.clone()).await;
        let mut texts = FaultTexts::default();
        *match kind {
            "request" => &mut texts.reset_request,
            "answer" => &mut texts.reset_answer,
            _ => &mut texts.reset_body,
        } = Some(all());
        let tap = tap(server.address, texts).await;
        let mut client = TcpStream::connect(tap.address()).await.unwrap();
        client.write_all(GET).await.unwrap();
        let mut received = Vec::new();
        let read = soon(client.read_to_end(&mut received)).await;
        let error = read.expect_err("the connection is reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{kind}");
        let reached = soon(server.results.recv()).await.unwrap();
        let counts = soon(tap.stop()).await;
        let head_bytes = whole.len() - 1000;
        let struck = &counts.faults;
        match kind {
            "request" => assert_eq!((reached, struck.reset_request), (0, 1)),
            "answer" => assert_eq!((reached, struck.reset_answer), (1, 1)),
            _ => assert_eq!((reached, struck.reset_body), (1, 1)),
        }
        let passed = usize::try_from(counts.bytes_to_client).unwrap();
        match kind {
            "body" => assert!((head_bytes..whole.len()).contains(&passed), "{passed}"),
            _ => assert_eq!(passed, 0),
        }
    }
}

#[tokio::test]
async fn a_stalled_answer_stops_in_its_body_and_a_slow_one_before_its_head() {
    let server = serving(sized(100_000)).await;
    let pause = Duration::from_millis(400);
    let pause_text = Some("400ms".to_owned());
    let stalls = FaultTexts {
        stall: Some(all()),
        stall_for: pause_text.clone(),
        ..FaultTexts::default()
    };
    let is_slow = FaultTexts {
        slow: Some(all()),
        slow_for: pause_text,
        ..FaultTexts::default()
    };
    for (texts, struck) in [(stalls, (1, 0)), (is_slow, (0, 1))] {
        let tap = tap(server.address, texts).await;
        let mut client = TcpStream::connect(tap.address()).await.unwrap();
        let began = Instant::now();
        client.write_all(GET).await.unwrap();
        read_exactly(&mut client, 1).await;
        let first = began.elapsed();
        let bytes_before = tap.counts().bytes_to_client;
        read_exactly(&mut client, sized(100_000).len() - 1).await;
        let last = began.elapsed();
        let counts = tap.counts().faults;
        assert_eq!((counts.stall, counts.slow), struck);
        if counts.stall == 1 {
            assert!(last >= pause, "{last:?}");
            // The body stops after as many bytes as the seed says, not before its head.
            let whole = sized(100_000).len() as u64;
            assert!((40..whole).contains(&bytes_before), "{bytes_before}");
        } else {
            assert!(first >= pause, "{first:?}");
        }
    }
}

#[tokio::test]
async fn a_tap_of_one_worker_answers_one_after_another_on_all_connections() {
    let server = serving(sized(3)).await;
    let texts = FaultTexts {
        delay: Some("100ms".to_owned()),
        workers: Some("1".to_owned()),
        ..FaultTexts::default()
    };
    let tap = tap(server.address, texts).await;
    let address = tap.address();
    let began = Instant::now();
    let asked: Vec<_> = (0..4)
        .map(|_| tokio::spawn(exchange(address, GET)))
        .collect();
    for exchange in asked {
        assert_eq!(soon(exchange).await.unwrap().0, sized(3));
    }
    assert!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
}

/// What each of 60 requests meets, one connection each, in order.
async fn fates(seed: u64) -> Vec<usize> {
    let server = serving(sized(100)).await;
    let settings = Settings {
        seed,
        faults: faults(&FaultTexts {
            busy: Some("20%".to_owned()),
            reset_body: Some("20%".to_owned()),
            reset_answer: Some("20%".to_owned()),
            ..FaultTexts::default()
        }),
        ..Settings::new(server.address.to_string())
    };
    let tap = Tap::start(settings).await.unwrap();
    let mut fates = Vec::new();
    for _ in 0..60 {
        let before = tap.counts();
        exchange(tap.address(), GET).await;
        // Bytes that reached the kernel before a reset may still be lost: the tap's own count is
        // what repeats.
        fates.push(usize::try_from(tap.counts().bytes_to_client - before.bytes_to_client).unwrap());
    }
    fates
}

#[tokio::test]
async fn the_same_seed_strikes_the_same_requests_in_the_same_place() {
    let seed = 11;
    let (first, second) = (fates(seed).await, fates(seed).await);
    assert_eq!(first, second, "seed {seed}");
    assert_ne!(first, fates(12).await);
}

#[tokio::test]
async fn faults_are_replaced_while_the_tap_runs() {
    let server = serving(sized(3)).await;
    let settings = Settings {
        stats: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        ..Settings::new(server.address.to_string())
    };
    let tap = Tap::start(settings).await.unwrap();
    let control = tap.stats_address().unwrap();
    let put = |body: &str| {
        format!(
            "PUT /faults HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    assert_eq!(exchange(tap.address(), GET).await.0, sized(3));

    let (answer, _) = exchange(control, put(r#"{"busy": "100%"}"#).as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    let (refused, _) = exchange(tap.address(), GET).await;
    assert!(refused.starts_with(b"HTTP/1.1 503"));

    for (body, told) in [
        (
            r#"{"busy": "lots", "delay": "1"}"#,
            "2 faults in the faults",
        ),
        (r#"{"bussy": "1%"}"#, "unknown field `bussy`"),
    ] {
        let (answer, _) = exchange(control, put(body).as_bytes()).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with("HTTP/1.1 400") && answer.contains(told),
            "{answer}"
        );
    }
    let (in_force, _) = exchange(control, b"GET /faults HTTP/1.1\r\n\r\n").await;
    assert!(String::from_utf8_lossy(&in_force).contains(r#""busy": "100%""#));

    exchange(control, put("{}").as_bytes()).await;
    assert_eq!(exchange(tap.address(), GET).await.0, sized(3));
    let (counts, _) = exchange(control, b"GET / HTTP/1.1\r\n\r\n").await;
    let body = counts
        .split(|b| *b == b'{')
        .skip(1)
        .collect::<Vec<_>>()
        .join(&b'{');
    let json: serde_json::Value =
        serde_json::from_str(&format!("{{{}", String::from_utf8(body).unwrap())).unwrap();
    assert_eq!(json["requests"], 3);
    assert_eq!(json["responses"]["503"], 1);
    assert_eq!(json["faults"]["busy"], 1);
}

#[tokio::test]
async fn either_side_may_end_first_and_the_other_goes_on() {
    // The server answers only once the client has ended; then ends while the client still sends.
    let mut server = Server::start(|connection: TcpStream| async move {
        let (mut reader, mut writer) = connection.into_split();
        let mut received = Vec::new();
        writer.write_all(b"\x00early").await.unwrap();
        writer.shutdown().await.unwrap();
        reader.read_to_end(&mut received).await.unwrap();
        received.len()
    })
    .await;
    let tap = tap(server.address, FaultTexts::default()).await;
    let client = TcpStream::connect(tap.address()).await.unwrap();
    let (mut reader, mut writer) = client.into_split();
    writer.write_all(b"\x00first").await.unwrap();
    let mut received = Vec::new();
    soon(reader.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received, b"\x00early");
    writer.write_all(&vec![1; 100_000]).await.unwrap();
    writer.shutdown().await.unwrap();
    assert_eq!(soon(server.results.recv()).await, Some(100_006));
}

async fn until_closed(mut reader: OwnedReadHalf) -> bool {
    let mut rest = Vec::new();
    soon(reader.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn a_client_that_vanishes_takes_the_servers_connection_with_it() {
    let mut server = Server::start(|mut connection: TcpStream| async move {
        let mut input = [0; 29];
        connection.read_exact(&mut input).await.unwrap();
        let (reader, mut writer) = connection.into_split();
        writer.write_all(&sized(1 << 20)[..100_000]).await.unwrap();
        until_closed(reader).await
    })
    .await;
    let tap = tap(server.address, FaultTexts::default()).await;
    let mut client = TcpStream::connect(tap.address()).await.unwrap();
    client.write_all(GET).await.unwrap();
    read_exactly(&mut client, 1).await;
    client.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(
        soon(server.results.recv()).await,
        Some(false),
        "a reset stays a reset"
    );
}

#[tokio::test]
async fn a_server_that_vanishes_takes_the_clients_connection_with_it() {
    let server = Server::start(|mut connection: TcpStream| async move {
        let mut input = [0; 29];
        connection.read_exact(&mut input).await.unwrap();
        connection.write_all(&sized(100)[..90]).await.unwrap();
        connection.set_zero_linger().unwrap();
    })
    .await;
    let tap = tap(server.address, FaultTexts::default()).await;
    let client = TcpStream::connect(tap.address()).await.unwrap();
    let (reader, mut writer) = client.into_split();
    writer.write_all(GET).await.unwrap();
    assert!(!until_closed(reader).await, "a reset stays a reset");

    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let tap = self::tap(address, FaultTexts::default()).await;
    let client = TcpStream::connect(tap.address()).await.unwrap();
    assert!(!until_closed(client.into_split().0).await);
    assert_eq!(soon(tap.stop()).await.connect_errors, 1);
}

#[tokio::test]
async fn one_connection_more_than_the_limit_waits_for_one_to_end() {
    let server = serving(sized(3)).await;
    let settings = Settings {
        connections_max: 1,
        ..Settings::new(server.address.to_string())
    };
    let tap = Tap::start(settings).await.unwrap();
    let mut first = TcpStream::connect(tap.address()).await.unwrap();
    first.write_all(GET).await.unwrap();
    read_exactly(&mut first, sized(3).len()).await;
    let mut second = TcpStream::connect(tap.address()).await.unwrap();
    second.write_all(GET).await.unwrap();
    soon(async {
        while tap.counts().connections_waited == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(tap.counts().requests, 1);
    drop(first);
    assert_eq!(read_exactly(&mut second, sized(3).len()).await, sized(3));
}

#[tokio::test]
async fn a_head_beyond_the_limit_passes_opaquely() {
    let server = serving(sized(3)).await;
    let settings = Settings {
        head_bytes_max: 1024,
        ..Settings::new(server.address.to_string())
    };
    let tap = Tap::start(settings).await.unwrap();
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(40_000));
    let (received, _) = exchange(tap.address(), long.as_bytes()).await;
    assert_eq!(received, sized(3));
    let counts = soon(tap.stop()).await;
    assert_eq!((counts.requests, counts.connections_opaque), (0, 1));
    assert_eq!(counts.bytes_to_server, long.len() as u64);
}

#[tokio::test]
async fn a_tap_that_stops_lets_requests_end_and_closes_what_is_idle() {
    let server = serving(sized(3)).await;
    let texts = FaultTexts {
        delay: Some("200ms".to_owned()),
        ..FaultTexts::default()
    };
    let tap = tap(server.address, texts).await;
    let idle = TcpStream::connect(tap.address()).await.unwrap();
    let mut busy = TcpStream::connect(tap.address()).await.unwrap();
    busy.write_all(GET).await.unwrap();
    soon(async {
        while tap.counts().requests == 0 || tap.counts().connections < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let stopping = tokio::spawn(tap.stop());
    assert!(until_closed(idle.into_split().0).await);
    assert_eq!(read_exactly(&mut busy, sized(3).len()).await, sized(3));
    let counts = soon(stopping).await.unwrap();
    assert_eq!(counts.connections_open, 0);
    assert_eq!(counts.body_bytes_to_client, 3);
}
