//! Rotated credentials over a real socket on loopback: read again when the file changed or after a 401.

use crate::agent::ports::{Clock, Cluster};
use crate::cluster::{KubeCluster, Options, Origin, Timing, connect};
use crate::drain::action::FaultClass;
use crate::drain::time::Mono;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A clock that stands still: nothing here depends on time.
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Mono {
        Mono(1000)
    }

    fn booted_at(&self) -> i64 {
        0
    }

    async fn sleep_until(&self, _when: Mono) {
        std::future::pending::<()>().await;
    }
}

/// Which token is accepted, and which were shown.
#[derive(Default)]
struct Door {
    accepted: Mutex<String>,
    shown: Mutex<Vec<String>>,
}

impl Door {
    fn accept(&self, token: &str) {
        token.clone_into(&mut self.accepted.lock().unwrap());
    }

    fn shown(&self) -> Vec<String> {
        self.shown.lock().unwrap().clone()
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let door = Arc::clone(&self);
            tokio::spawn(async move { door.talk(stream).await });
        }
    }

    /// One request per connection.
    async fn talk(&self, mut stream: TcpStream) {
        let mut request = Vec::new();
        let mut chunk = [0; 4096];
        while !request.windows(4).any(|window| window == b"\r\n\r\n") {
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(count) => request.extend_from_slice(&chunk[..count]),
            }
        }
        let request = String::from_utf8_lossy(&request).to_lowercase();
        let token = request
            .split("bearer ")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .unwrap_or_default()
            .to_owned();
        let welcome = token == *self.accepted.lock().unwrap();
        self.shown.lock().unwrap().push(token);
        let (line, body) = if welcome {
            let node = json!({"metadata": {"name": "host1", "uid": "u", "resourceVersion": "1"}});
            ("200 OK", node)
        } else {
            (
                "401 Unauthorized",
                json!({"kind": "Status", "code": 401, "message": "Unauthorized"}),
            )
        };
        let body = body.to_string();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {line}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn write(path: &Path, port: u16, token: &str) {
    fs::write(
        path,
        format!(
            "current-context: c\nclusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\n"
        ),
    )
    .unwrap();
}

struct Scene {
    door: Arc<Door>,
    cluster: KubeCluster<Standing>,
    path: PathBuf,
    port: u16,
    _dir: TempDir,
}

async fn scene() -> Scene {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let door = Arc::new(Door::default());
    tokio::spawn(Arc::clone(&door).serve(listener));
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("kubeconfig");
    write(&path, port, "first");
    door.accept("first");
    let options = Options {
        origin: Origin::File(path.clone()),
        node_name: String::new(),
        hostname: "HOST1".into(),
        timing: Timing::default(),
    };
    let connected = connect(options, Standing).await.unwrap();
    assert_eq!(connected.node_name, "host1");
    Scene {
        door,
        cluster: connected.cluster,
        path,
        port,
        _dir: dir,
    }
}

#[tokio::test]
async fn a_changed_file_is_taken_up_by_the_next_request() {
    let scene = scene().await;
    scene.cluster.read_node().await.unwrap();
    write(&scene.path, scene.port, "second-token");
    scene.door.accept("second-token");
    scene.cluster.read_node().await.unwrap();
    assert_eq!(scene.door.shown(), ["first", "second-token"]);
}

#[tokio::test]
async fn a_401_has_the_credentials_read_again_once() {
    let scene = scene().await;
    scene.door.accept("none");
    let fault = scene.cluster.read_node().await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Unauthorized);
    assert_eq!(
        scene.door.shown(),
        ["first", "first"],
        "once more, then the error"
    );
    // The next one comes too soon for another rebuild.
    scene.cluster.read_node().await.unwrap_err();
    assert_eq!(scene.door.shown().len(), 3);
}

#[tokio::test]
async fn a_broken_file_leaves_the_old_client_in_place() {
    let scene = scene().await;
    fs::write(&scene.path, "half a fi").unwrap();
    scene.cluster.read_node().await.unwrap();
    fs::remove_file(&scene.path).unwrap();
    scene.cluster.read_node().await.unwrap();
    assert_eq!(scene.door.shown(), ["first", "first"]);
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let scene = scene().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    write(&scene.path, port, "first");
    let fault = scene.cluster.read_node().await.unwrap_err();
    assert_eq!(fault.text, "cannot read node host1: connection refused");
    assert_eq!(fault.class, FaultClass::Transient);
}
