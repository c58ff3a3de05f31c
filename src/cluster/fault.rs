//! What kind of failure is it? Everything that can go wrong with a request, as a class and a sentence.
//!
//! `kube::Error`'s own text never leaves this file: it repeats the server's answer in debug form.

use super::reply;
use crate::drain::action::{Fault, FaultClass};
use crate::drain::answer::Reply;
use std::error::Error;
use std::io;

/// `cannot <what>: <why>`.
pub(crate) fn fault(class: FaultClass, what: &str, why: &str) -> Fault {
    Fault {
        class,
        text: format!("cannot {what}: {why}"),
    }
}

/// A failure below HTTP, or an unreadable answer.
pub(crate) fn from_kube(what: &str, error: &kube::Error) -> Fault {
    if let kube::Error::Api(status) = error {
        from_reply(what, &reply::from_status(status))
    } else if let kube::Error::BuildRequest(error) = error {
        fault(FaultClass::Fatal, what, &plain(error))
    } else if let kube::Error::SerdeError(error) = error {
        let why = format!("the server's answer cannot be read: {error}");
        fault(FaultClass::Transient, what, &why)
    } else {
        below_http(what, error)
    }
}

/// A time limit of ours ran out.
pub(crate) fn timed_out(what: &str, seconds: f64) -> Fault {
    fault(
        FaultClass::Transient,
        what,
        &format!("no answer within {seconds} s"),
    )
}

/// An HTTP answer that is not the one that was hoped for.
pub(crate) fn from_reply(what: &str, reply: &Reply) -> Fault {
    let why = if reply.message.is_empty() {
        format!("the server answered {}", reply.code)
    } else {
        format!("{} ({})", reply.message.trim_end_matches('.'), reply.code)
    };
    fault(class(reply), what, &why)
}

/// The class of an HTTP answer.
fn class(reply: &Reply) -> FaultClass {
    match reply.code {
        401 => FaultClass::Unauthorized,
        403 => FaultClass::Denied,
        // A denial by a ValidatingAdmissionPolicy is 422 as well, and reading again does not cure it.
        422 if reply.message.contains("ValidatingAdmissionPolicy") => FaultClass::Denied,
        404 => FaultClass::Gone,
        409 | 422 => FaultClass::Conflict,
        408 | 410 | 429 | 500.. => FaultClass::Transient,
        _ => FaultClass::Fatal,
    }
}

/// The innermost cause is the one that people understand: "connection refused", not "client error (Connect)".
fn below_http(what: &str, error: &kube::Error) -> Fault {
    let (root, kind) = root(error);
    let text = root.to_string();
    // The TLS alert that a server sends when it does not like our certificate.
    if text.contains("received fatal alert") {
        let why = format!("the server refuses our certificate: {}", lower(&text));
        return fault(FaultClass::Unauthorized, what, &why);
    }
    if text.contains("invalid peer certificate") {
        let why = format!(
            "the server's certificate is not to be trusted ({}): is the certificate authority in the kubeconfig the cluster's, and the clock of this host right?",
            lower(&text)
        );
        return fault(FaultClass::Transient, what, &why);
    }
    let why = match kind {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        Some(io::ErrorKind::ConnectionReset) => "the connection was reset".to_owned(),
        Some(io::ErrorKind::TimedOut) => "the connection timed out".to_owned(),
        Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => {
            "the connection was closed".to_owned()
        }
        _ => lower(&text),
    };
    fault(FaultClass::Transient, what, &why)
}

/// The innermost cause, and the kind of the innermost I/O error on the way to it.
fn root<'e>(
    error: &'e (dyn Error + 'static),
) -> (&'e (dyn Error + 'static), Option<io::ErrorKind>) {
    let (mut innermost, mut kind) = (error, None);
    for cause in causes(error) {
        innermost = cause;
        kind = kind_of(cause).or(kind);
    }
    (innermost, kind)
}

/// The error and what has led to it, outermost first.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    // A bound, should a foreign error ever name itself as its source.
    std::iter::successors(Some(error), |error| cause_of(*error)).take(17)
}

fn cause_of<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    // An I/O error hides what it wraps from `source`: it hands out the cause of that.
    let wrapped = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match wrapped {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

fn kind_of(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    error.downcast_ref::<io::Error>().map(io::Error::kind)
}

/// A stream was cut off in the middle, as proxies and long watches do; it is opened again from where it was.
pub(crate) fn was_cut_off(error: &io::Error) -> bool {
    // hyper says it in words only.
    error.to_string().contains("unexpected EOF during chunk")
        || causes(error).any(|cause| kind_of(cause) == Some(io::ErrorKind::UnexpectedEof))
}

/// Any error as part of a sentence.
pub(crate) fn plain(error: &(dyn Error + 'static)) -> String {
    lower(&root(error).0.to_string())
}

/// Without capital, trailing dot and the number that the operating system adds.
fn lower(text: &str) -> String {
    let text = text.split(" (os error").next().unwrap_or(text);
    let text = text.trim().trim_end_matches('.');
    let mut letters = text.chars();
    let first = letters.next();
    match (first, letters.clone().next()) {
        // Abbreviations stay as they are.
        (Some(first), second) if !second.is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16, message: &str) -> Fault {
        let reply = Reply {
            code,
            message: message.into(),
            ..Reply::default()
        };
        from_reply("patch node n1", &reply)
    }

    #[test]
    fn classes_of_answers() {
        use FaultClass::{Conflict, Denied, Fatal, Gone, Transient, Unauthorized};
        for (code, message, expected) in [
            (400, "", Fatal),
            (401, "", Unauthorized),
            (403, "", Denied),
            (404, "", Gone),
            (405, "", Fatal),
            (408, "", Transient),
            (409, "", Conflict),
            (410, "", Transient),
            (422, "the server rejected our request", Conflict),
            (
                422,
                "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                Denied,
            ),
            (429, "", Transient),
            (500, "", Transient),
            (503, "", Transient),
        ] {
            assert_eq!(answered(code, message).class, expected, "{code} {message}");
        }
        assert_eq!(
            answered(403, "node n1 is not allowed.").text,
            "cannot patch node n1: node n1 is not allowed (403)"
        );
        assert_eq!(
            answered(502, "").text,
            "cannot patch node n1: the server answered 502"
        );
    }

    #[test]
    fn the_innermost_cause_is_told() {
        let refused = io::Error::from_raw_os_error(111);
        let wrapped = kube::Error::Service(Box::new(io::Error::other(refused)));
        assert_eq!(
            from_kube("list pods on node n1", &wrapped),
            Fault {
                class: FaultClass::Transient,
                text: "cannot list pods on node n1: connection refused".into()
            }
        );
        let unknown = kube::Error::Service("invalid peer certificate: UnknownIssuer".into());
        let said = from_kube("x", &unknown);
        assert_eq!(said.class, FaultClass::Transient);
        assert!(
            said.text.contains("authority in the kubeconfig"),
            "{said:?}"
        );
        let alert = kube::Error::Service("received fatal alert: CertificateExpired".into());
        assert_eq!(from_kube("x", &alert).class, FaultClass::Unauthorized);
    }

    #[test]
    fn sentences_are_lower_case() {
        for (text, expected) in [
            ("Connection refused (os error 111)", "connection refused"),
            ("DNS lookup failed.", "DNS lookup failed"),
            ("", ""),
            ("A dog", "a dog"),
        ] {
            assert_eq!(lower(text), expected);
        }
    }
}
