//! Whose certificate is it? The common name in the subject of an X.509 certificate.
//!
//! The certificate is our own, read from a local file, and only one field of it is wanted, so a walk over
//! its outer structure is enough: RFC 5280 section 4.1, DER with definite lengths.

/// Object identifier 2.5.4.3, `commonName`.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

const INTEGER: u8 = 0x02;
const OBJECT: u8 = 0x06;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const TELETEX: u8 = 0x14;
const IA5: u8 = 0x16;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

/// The common name of the subject; `None` when the certificate has none or cannot be read.
pub(crate) fn common_name(der: &[u8]) -> Option<String> {
    let (certificate, _) = expect(der, SEQUENCE)?;
    let (body, _) = expect(certificate, SEQUENCE)?;
    let body = match take(body)? {
        (VERSION, _, rest) => rest,
        _ => body,
    };
    let (_serial, body) = expect(body, INTEGER)?;
    let (_algorithm, body) = expect(body, SEQUENCE)?;
    let (_issuer, body) = expect(body, SEQUENCE)?;
    let (_validity, body) = expect(body, SEQUENCE)?;
    let (mut subject, _) = expect(body, SEQUENCE)?;
    while !subject.is_empty() {
        let (mut attributes, rest) = expect(subject, SET)?;
        subject = rest;
        while !attributes.is_empty() {
            let (attribute, rest) = expect(attributes, SEQUENCE)?;
            attributes = rest;
            let (kind, value) = expect(attribute, OBJECT)?;
            if kind == COMMON_NAME {
                return text(value);
            }
        }
    }
    None
}

fn text(der: &[u8]) -> Option<String> {
    match take(der)? {
        (UTF8 | PRINTABLE | TELETEX | IA5, bytes, _) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}

/// The content of the next element, which must have this tag, and what follows it.
fn expect(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = take(der)?;
    (tag == wanted).then_some((content, rest))
}

/// Tag and content of the next element, and what follows it.
fn take(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, der) = der.split_first()?;
    let (&first, der) = der.split_first()?;
    let (length, der) = if first < 0x80 {
        (usize::from(first), der)
    } else {
        // Up to four bytes of length: certificates are small. 0x80 (indefinite) is not DER.
        let count = usize::from(first & 0x7f);
        if !(1..=4).contains(&count) || der.len() < count {
            return None;
        }
        let (bytes, der) = der.split_at(count);
        let length = bytes
            .iter()
            .fold(0_usize, |length, byte| (length << 8) | usize::from(*byte));
        (length, der)
    };
    (der.len() >= length).then(|| (tag, &der[..length], &der[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_or_broken_certificates_have_no_name() {
        let der = pem::parse(crate::cluster::tests::kubeconfig::NODE_CERTIFICATE)
            .unwrap()
            .into_contents();
        assert_eq!(common_name(&der).as_deref(), Some("system:node:node01"));
        for end in 0..100 {
            assert_eq!(common_name(&der[..end]), None, "cut at {end}");
        }
        for place in 0..der.len() {
            let mut broken = der.clone();
            broken[place] ^= 0x80;
            // Whatever it finds, it ends and does not panic.
            let _name = common_name(&broken);
        }
        assert_eq!(common_name(b"\x30\x80\x00\x00"), None);
    }
}
