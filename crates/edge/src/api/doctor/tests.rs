use axum::body::Body;
use http::Method;
use serde_json::Value;

use super::*;
use crate::api::tests::test_api::{TestApi, request};

/// Two goroutines that wait for a lock, and one that holds it while it sleeps.
const DUMP: &str = "goroutine 1 [sync.Mutex.Lock, 12 minutes]:\nsync.runtime_SemacquireMutex(0xc000010000, 0x0, 0x1)\n\t/usr/local/go/src/runtime/sema.go:77 +0x25\nsync.(*Mutex).lockSlow(0xc000010000)\n\t/usr/local/go/src/sync/mutex.go:171 +0x15d\nsync.(*Mutex).Lock(...)\n\t/usr/local/go/src/sync/mutex.go:90\nmain.(*Cache).Get(0xc000010000)\n\t/app/cache.go:20 +0x40\n\n";

fn post(world: &TestApi, kind: &str, body: Vec<u8>) -> http::Request<Body> {
    let mut asked = request(Method::POST, "/api/v1/doctor", Value::Null);
    *asked.body_mut() = Body::from(body);
    let headers = asked.headers_mut();
    headers.insert("content-type", kind.parse().unwrap());
    headers.insert("authorization", format!("Bearer {}", world.local).parse().unwrap());
    asked
}

#[tokio::test]
async fn an_upload_is_answered_as_the_command_line_answers_it() {
    let world = TestApi::new().ready().await;
    let expected: Value =
        serde_json::from_str(&doctor::render::json(&doctor::examine("upload", DUMP.as_bytes())))
            .unwrap();
    let plain = world.send(post(&world, "application/octet-stream", DUMP.into())).await;
    assert_eq!((plain.status, plain.json()), (200, expected));

    let form = format!(
        "--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"one.txt\"\r\n\
         Content-Type: text/plain\r\n\r\n{DUMP}\r\n--XyZ\r\nContent-Disposition: form-data; \
         name=\"file\"; filename=\"two.txt\"\r\n\r\n{DUMP}\r\n--XyZ--\r\n"
    );
    let files = [("one.txt", DUMP.as_bytes()), ("two.txt", DUMP.as_bytes())];
    let expected: Value =
        serde_json::from_str(&doctor::render::json(&doctor::examine_all(files))).unwrap();
    let several = post(&world, "multipart/form-data; boundary=XyZ", form.clone().into_bytes());
    let several = world.send(several).await;
    assert_eq!((several.status, several.json()), (200, expected));

    let cut = post(&world, "multipart/form-data; boundary=XyZ", form.as_bytes()[..90].to_vec());
    let cut = world.send(cut).await;
    assert_eq!((cut.status, &*cut.code()), (400, "invalid"), "{}", cut.text);
    let ann = world.somebody("ann", &[["*", "*", "*", "*"]]).await;
    let refused = world.ask_as(&ann, Method::POST, "/doctor", Value::Null).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
}

#[test]
fn a_form_is_read_whatever_is_in_its_files() {
    let body = Bytes::from_static(b"--b\r\n\r\n--b--\r\n\r\n--b\r\n\r\n\r\n--b--");
    let files = parts(&body, "b").unwrap();
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["upload-1", "upload-2"]);
    assert_eq!((&*files[0].1, &*files[1].1), (&b"--b--\r\n"[..], &b""[..]));
    for broken in ["", "--b", "--b\r\n", "--b\r\n\r\nno end", "--c\r\n\r\n\r\n--c--"] {
        assert!(parts(&Bytes::copy_from_slice(broken.as_bytes()), "b").is_err(), "{broken:?}");
    }
}
