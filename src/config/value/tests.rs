use super::*;

#[test]
fn addresses_to_listen_on() {
    for (text, shown) in [("[::]:443", "[::]:443"), (":9091", "[::]:9091"), ("0.0.0.0:80", "0.0.0.0:80")] {
        assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), shown);
    }
    for bad in ["", "443", "localhost:443", ":x", ":70000", "1.2.3.4", "::1:443x"] {
        assert!(bad.parse::<ListenAddress>().unwrap_err().contains("[::]:443"), "{bad}");
    }
    let at = |text: &str| text.parse::<ListenAddress>().unwrap();
    for (a, b, collide) in [
        ("[::]:443", "0.0.0.0:443", true),
        ("0.0.0.0:443", "127.0.0.1:443", true),
        ("127.0.0.1:443", "127.0.0.2:443", false),
        ("[::]:443", "[::]:444", false),
        ("0.0.0.0:443", "[::1]:443", false),
    ] {
        assert_eq!((at(a).collides(at(b)), at(b).collides(at(a))), (collide, collide), "{a} {b}");
    }
}

#[test]
fn hosts_with_ports() {
    for text in ["kube.example.com:443", "[2001:db8::1]:8443", "203.0.113.7:1"] {
        assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
    }
    for bad in ["kube.example.com", "2001:db8::1:443", "x:0", "x:70000", ":443", "[x]:1", "[::1:1", "https://x:1", "a b:1"] {
        assert!(bad.parse::<HostPort>().is_err(), "{bad}");
    }
}

#[test]
fn ranges() {
    assert_eq!("30000-32767".parse(), Ok(PortRange { first: 30000, last: 32767 }));
    for bad in ["", "1", "2-1", "0-5", "1-70000", "a-b", "1-2-3"] {
        assert!(bad.parse::<PortRange>().is_err(), "{bad}");
    }
    assert_eq!("2000000-2065535".parse::<UidRange>().unwrap().count(), 65_536);
    for bad in ["0-5", "999-2000", "5000-4000", "1000-4294967295", "x"] {
        assert!(bad.parse::<UidRange>().is_err(), "{bad}");
    }
}

#[test]
fn sizes_and_spans() {
    for (text, bytes, shown) in [
        ("2Gi", 2 << 30, "2Gi"),
        ("512MiB", 512 << 20, "512Mi"),
        ("1000", 1000, "1000"),
        ("1k", 1000, "1000"),
        ("3 Ki", 3072, "3Ki"),
        ("0", 0, "0"),
    ] {
        let size: Size = text.parse().unwrap();
        assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, shown));
    }
    for bad in ["", "Gi", "-1", "1.5Gi", "9999999999Ti", "1 x", "1é"] {
        assert!(bad.parse::<Size>().is_err(), "{bad}");
    }
    for (text, seconds, shown) in [("30s", 30, "30s"), ("1h30m", 5400, "1h30m"), ("7d", 604_800, "7d"), ("90m", 5400, "1h30m")] {
        let span: Span = text.parse().unwrap();
        assert_eq!((span.0.as_secs(), span.to_string().as_str()), (seconds, shown));
    }
    for bad in ["", "30", "s", "1w", "1.5h", "0s", "99999999999999999999s", "200000000000d", "-1s", "1é"] {
        assert!(bad.parse::<Span>().is_err(), "{bad}");
    }
}

#[test]
fn passwords_are_shown_to_nobody() {
    for (url, shown) in [
        ("postgresql://kubebyon:s3cr3t@db:5432/kubebyon?sslmode=require&password=s3cr3t", "postgresql://kubebyon:***@db:5432/kubebyon"),
        ("amqp://host:5672/%2f", "amqp://host:5672/%2f"),
        ("postgres://u:p@s3cr3t@db/x", "postgres://u:***@db/x"),
        ("postgres://u:s3cr3t/s3cr3t@db/x", "***"),
        ("host=db password=s3cr3t", "***"),
        ("", ""),
    ] {
        let secret = SecretUrl::new(url);
        assert_eq!(secret.to_string(), shown);
        assert_eq!(secret.expose(), url);
        assert!(!format!("{secret:?}{}", serde_json::to_string(&secret).unwrap()).contains("s3cr3t"), "{url}");
    }
}

#[test]
fn chart_values_are_a_mapping_in_either_form() {
    let read = |json: serde_json::Value| serde_json::from_value::<ChartValues>(json);
    assert_eq!(read("a: {b: 1}".into()).unwrap().as_yaml(), "a: {b: 1}");
    assert_eq!(read(serde_json::json!({"a": {"b": 1}})).unwrap().as_yaml(), r#"{"a":{"b":1}}"#);
    assert_eq!(read("  ".into()).unwrap(), ChartValues::default());
    for bad in [serde_json::json!("- a"), serde_json::json!([1]), serde_json::json!("a: [1")] {
        assert!(read(bad).is_err());
    }
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = (text.parse::<ListenAddress>(), text.parse::<HostPort>(), text.parse::<PortRange>(), text.parse::<UidRange>());
        let _ = (text.parse::<Size>(), text.parse::<Span>(), SecretUrl::new(text).to_string());
    }

    #[test]
    fn what_is_written_is_read_again(bytes in 0u64.., seconds in 1u64..3_155_760_000) {
        proptest::prop_assert_eq!(Size(bytes).to_string().parse::<Size>(), Ok(Size(bytes)));
        proptest::prop_assert_eq!(Span::seconds(seconds).to_string().parse::<Span>(), Ok(Span::seconds(seconds)));
    }
}
