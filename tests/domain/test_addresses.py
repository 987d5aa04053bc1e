"""Where a webhook may go."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from urllib.parse import urlsplit

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from domain.addresses import NOT_ALLOWED, Target, allowed_address, check_url
from domain.errors import BadInput

INTERNAL_4 = [
    "0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
    "127.0.0.1", "127.255.255.255", "168.63.129.16", "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.0.9", "192.0.0.192", "192.0.2.1", "192.31.196.1", "192.52.193.1",
    "192.88.99.1", "192.168.0.1", "192.168.255.255", "192.175.48.1", "198.18.0.1", "198.19.255.255", "198.51.100.1",
    "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
]  # fmt: skip
PUBLIC_4 = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
    "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0",
    "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
]  # fmt: skip
REFUSED_6 = [
    "::", "::1", "::2", "::8.8.8.8", "::127.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b:1::1", "64:ff9b:1::808:808",
    "64:ff9b:0:1::808:808", "100::1", "100:0:0:1::1", "2001::1", "2001:0:808:808::1", "2001:1::1", "2001:2::1",
    "2001:10::1", "2001:20::1", "2001:1ff::1", "2001:db8::1", "2002:808:808::1", "2002:7f00:1::1", "2002:a00:1::1",
    "3ffe::1", "3fff::1", "3fff:fff::1", "4000::1", "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fe80::1",
    "fe80::1%eth0", "2606:4700::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "ffff::1", "1fff:ffff::1",
    "2606:4700::5efe:a00:1", "2606:4700::200:5efe:808:808",
]  # fmt: skip
PUBLIC_6 = [
    "2000::1",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2003::1",
    "2606:4700:4700::1111",
    "2a00:1450::1",
    "3ffd::1",
]


@pytest.mark.parametrize("address", INTERNAL_4)
@pytest.mark.parametrize("form", ["{}", "::ffff:{}", "64:ff9b::{}"])
def test_an_internal_address_is_refused_in_every_form(address: str, form: str) -> None:
    assert not allowed_address(ip_address(form.format(address)))


@pytest.mark.parametrize("address", PUBLIC_4)
@pytest.mark.parametrize("form", ["{}", "::ffff:{}", "64:ff9b::{}"])
def test_a_public_address_is_allowed_in_the_forms_that_networks_use(address: str, form: str) -> None:
    assert allowed_address(ip_address(form.format(address)))


@pytest.mark.parametrize("address", REFUSED_6)
def test_what_is_no_plain_global_ipv6_is_refused(address: str) -> None:
    assert not allowed_address(ip_address(address))
    assert not allowed_address(ip_address(address), loopback=True) or address == "::1"


@pytest.mark.parametrize("address", PUBLIC_6)
def test_global_ipv6_is_allowed(address: str) -> None:
    assert allowed_address(ip_address(address))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_the_dangerous_setting_opens_loopback(address: str) -> None:
    assert allowed_address(ip_address(address), loopback=True)


@pytest.mark.parametrize("address", ["10.0.0.1", "0.0.0.0", "169.254.169.254", "192.168.1.1", "fd00:ec2::254", "::"])
def test_the_dangerous_setting_opens_nothing_else(address: str) -> None:
    assert not allowed_address(ip_address(address), loopback=True)


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
@example(IPv4Address("192.0.0.9"))
def test_no_ipv4_that_python_calls_private_is_allowed(address: IPv4Address) -> None:
    if allowed_address(address):
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_reserved
    assert allowed_address(address) == allowed_address(IPv6Address(f"::ffff:{address}"))
    assert allowed_address(address) == allowed_address(IPv6Address(f"64:ff9b::{address}"))


@given(st.integers(0, 2**128 - 1).map(IPv6Address) | st.integers(0x2001 << 112, 0x2003 << 112).map(IPv6Address))
def test_no_ipv6_that_python_calls_private_is_allowed(address: IPv6Address) -> None:
    assume(address.ipv4_mapped is None)
    if allowed_address(address):
        assert address.is_global
        assert not address.is_multicast
        assert address.sixtofour is None
        assert address.teredo is None


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        ("https://hooks.example.com", Target("https", "hooks.example.com", 443, "/")),
        ("https://hooks.example.com/", Target("https", "hooks.example.com", 443, "/")),
        ("HTTPS://Hooks.EXAMPLE.com:443/A?b=C", Target("https", "hooks.example.com", 443, "/A?b=C")),
        ("https://hooks.example.com:8443?b", Target("https", "hooks.example.com", 8443, "/?b")),
        ("https://a_b.example.com//x/../y;z@w:1", Target("https", "a_b.example.com", 443, "//x/../y;z@w:1")),
        ("https://bücher.example/%C3%BC", Target("https", "xn--bcher-kva.example", 443, "/%C3%BC")),
        ("https://xn--bcher-kva.example/", Target("https", "xn--bcher-kva.example", 443, "/")),
        ("https://8.8.8.8/", Target("https", "8.8.8.8", 443, "/")),
        ("https://[2606:4700:4700:0::1111]:8443/x", Target("https", "2606:4700:4700::1111", 8443, "/x")),
        ("https://1e100.net/", Target("https", "1e100.net", 443, "/")),
        ("https://4chan.0x.example/", Target("https", "4chan.0x.example", 443, "/")),
    ],
)
def test_a_url_has_one_form(raw: str, target: Target) -> None:
    assert check_url(raw) == target
    assert check_url(target.url) == target


@pytest.mark.parametrize(
    ("raw", "url"),
    [
        ("https://h.example:443/x", "https://h.example/x"),
        ("https://h.example:8443", "https://h.example:8443/"),
        ("https://[2606:4700::1]:8443/", "https://[2606:4700::1]:8443/"),
    ],
)
def test_the_one_form_leaves_out_the_schemes_own_port(raw: str, url: str) -> None:
    assert check_url(raw).url == url


ODD = "has an address in an odd notation; write it as four numbers, 192.0.2.1"
BAD_HOST = "has a bad host; write a name like hooks.example.com"
BAD_PORT = "has a bad port; use one from 1 to 65535, or leave it out"
SCHEME = "must begin with https://"
PATH = "has a blank, a backslash or a letter beyond ASCII in its path; percent-encode it"
CREDENTIALS = "holds a user name or password; leave them out, requests are signed"
UNUSUAL = "has a host with unusual letters; write it in its xn-- form"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("", SCHEME),
        ("hooks.example.com/", SCHEME),
        ("http://hooks.example.com/", SCHEME),
        ("ftp://hooks.example.com/", SCHEME),
        ("file:///etc/passwd", SCHEME),
        ("https:/hooks.example.com/", SCHEME),
        (" https://hooks.example.com/", SCHEME),
        ("https:\\\\hooks.example.com/", SCHEME),
        ("https://user:pass@hooks.example.com/", CREDENTIALS),
        ("https://user@hooks.example.com/", CREDENTIALS),
        ("https://@hooks.example.com/", CREDENTIALS),
        ("https://8.8.8.8@127.0.0.1/", CREDENTIALS),
        ("https://hooks.example.com/#x", "has a fragment; leave out the # and what follows"),
        ("https://hooks.example.com#", "has a fragment; leave out the # and what follows"),
        ("https://hooks.example.com:0/", BAD_PORT),
        ("https://hooks.example.com:99999/", BAD_PORT),
        ("https://hooks.example.com:/", BAD_PORT),
        ("https://hooks.example.com:-1/", BAD_PORT),
        ("https://hooks.example.com:4 43/", BAD_PORT),
        ("https://hooks.example.com:443:443/", BAD_PORT),
        ("https://hooks.example.com:٤٤٣/", BAD_PORT),
        ("https://hooks.example.com:80/", "has a port that is not open to webhooks; use 443 or 8443"),
        ("https://hooks.example.com:6379/", "has a port that is not open to webhooks; use 443 or 8443"),
        ("https://", BAD_HOST),
        ("https:///x", BAD_HOST),
        ("https://?x", BAD_HOST),
        ("https://-x.example/", BAD_HOST),
        ("https://x-.example/", BAD_HOST),
        ("https://a..example/", BAD_HOST),
        ("https://.example.com/", BAD_HOST),
        ("https://a b.example/", BAD_HOST),
        ("https://a\x00.example/", BAD_HOST),
        ("https://a\t.example/", BAD_HOST),
        ("https://127.0.0.1%2f.example/", BAD_HOST),
        ("https://127.0.0.1\\.example.com/", BAD_HOST),
        ("https://" + "a" * 64 + ".example/", BAD_HOST),
        ("https://" + "a." * 126 + "example/", BAD_HOST),
        ("https://hooks.example.com./", "has a host that ends in a dot; leave that out"),
        ("https://127.0.0.1./", "has a host that ends in a dot; leave that out"),
        ("https://0x7f.1/", ODD),
        ("https://0x7f000001/", ODD),
        ("https://0X7F.0.0.1/", ODD),
        ("https://2130706433/", ODD),
        ("https://017700000001/", ODD),
        ("https://0177.0.0.1/", ODD),
        ("https://127.1/", ODD),
        ("https://127.0.1/", ODD),
        ("https://127.0.0.01/", ODD),
        ("https://127.0.0.1.1/", ODD),
        ("https://256.1.1.1/", ODD),
        ("https://8.8.8.0x8/", ODD),
        ("https://hooks.example.1/", ODD),
        ("https://0/", ODD),
        ("https://１２７.1/", ODD),
        ("https://[::1%25lo]/", "has a bad host: no IPv6 address stands in its brackets"),
        ("https://[fe80::1%eth0]/", "has a bad host: no IPv6 address stands in its brackets"),
        ("https://[]/", "has a bad host: no IPv6 address stands in its brackets"),
        ("https://[127.0.0.1]/", "has a bad host: no IPv6 address stands in its brackets"),
        ("https://[v1.x]/", "has a bad host: no IPv6 address stands in its brackets"),
        ("https://[::1/", "has a bad host: no IPv6 address stands in its brackets"),
        ("https://[2606:4700::1]x/", "has a bad host: something stands behind its brackets"),
        ("https://straße.example/", UNUSUAL),
        ("https://a\u200db.example/", UNUSUAL),
        ("https://\ud800.example/", UNUSUAL),
        ("https://hooks.example.com/a b", PATH),
        ("https://hooks.example.com/ü", PATH),
        ("https://hooks.example.com/a\r\nHost: x", PATH),
        ("https://hooks.example.com/a\\b", PATH),
        ("https://hooks.example.com/" + "a" * 2048, "is longer than 2048 characters"),
        ("https://localhost/", NOT_ALLOWED),
        ("https://LOCALHOST:8443/", NOT_ALLOWED),
        ("https://x.localhost/", NOT_ALLOWED),
        ("https://intranet/", NOT_ALLOWED),
        ("https://127.0.0.1/", NOT_ALLOWED),
        ("https://１２７.０.０.１/", NOT_ALLOWED),
        ("https://127。0。0。1/", NOT_ALLOWED),
        ("https://ⓛocalhost/", NOT_ALLOWED),
        ("https://169.254.169.254/latest/meta-data", NOT_ALLOWED),
        ("https://[::1]/", NOT_ALLOWED),
        ("https://[::ffff:127.0.0.1]/", NOT_ALLOWED),
        ("https://[::ffff:7f00:1]:8443/", NOT_ALLOWED),
        ("https://[64:ff9b::a00:1]/", NOT_ALLOWED),
        ("https://[fd00:ec2::254]/", NOT_ALLOWED),
    ],
)
def test_a_url_no_webhook_may_go_to_is_refused_with_its_reason(raw: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_url(raw)
    assert str(refused.value) == f"url: {said}"


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        ("http://localhost:8000/hook", Target("http", "localhost", 8000, "/hook")),
        ("http://127.0.0.1/", Target("http", "127.0.0.1", 80, "/")),
        ("http://[::1]:1/", Target("http", "::1", 1, "/")),
        ("https://localhost/", Target("https", "localhost", 443, "/")),
        ("http://receiver:80/", Target("http", "receiver", 80, "/")),
    ],
)
def test_the_dangerous_setting_opens_plain_http_every_port_and_loopback(raw: str, target: Target) -> None:
    assert check_url(raw, dangerous=True) == target


@pytest.mark.parametrize("raw", ["http://10.0.0.1/", "http://169.254.169.254/", "http://[fd00:ec2::254]/"])
def test_the_dangerous_setting_opens_no_other_address(raw: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_url(raw, dangerous=True)
    assert str(refused.value) == f"url: {NOT_ALLOWED}"


def test_a_refusal_repeats_no_credential() -> None:
    with pytest.raises(BadInput) as refused:
        check_url("https://user:hunter2@hooks.example.com/")
    assert "hunter2" not in str(refused.value)


HOSTS = st.text(st.sampled_from("aA1.0x7f:[]@%#?/\\-_ \t\r\n\u3002ß１ⓛ"), max_size=20)


@given(st.builds("https://{}{}".format, HOSTS, st.sampled_from(["", "/x", ":443/", ":8443", "@h.example", "?q"])))
def test_whatever_is_accepted_reads_the_same_to_python_and_stays_as_it_is(raw: str) -> None:
    try:
        target = check_url(raw)
    except BadInput:
        return
    parts = urlsplit(target.url)
    assert (parts.hostname, parts.port or 443) == (target.host, target.port)
    assert (parts.username, parts.password, parts.fragment) == (None, None, "")
    assert target.url.isascii()
    assert check_url(target.url) == target


@given(st.integers(0, 2**32 - 1).map(IPv4Address), st.sampled_from(["{}", "[::ffff:{}]", "[64:ff9b::{}]"]))
def test_an_address_in_a_url_is_judged_as_an_address(address: IPv4Address, form: str) -> None:
    raw = f"https://{form.format(address)}/"
    if allowed_address(address):
        assert check_url(raw).port == 443
    else:
        with pytest.raises(BadInput, match=NOT_ALLOWED):
            check_url(raw)


@given(st.sampled_from(["127.0.0.0/8", "10.0.0.0/8", "169.254.0.0/16"]), st.data())
def test_no_notation_of_an_internal_address_is_accepted(network: str, data: st.DataObject) -> None:
    number = data.draw(st.integers(*(int(end) for end in (IPv4Network(network)[0], IPv4Network(network)[-1]))))
    octets = list(number.to_bytes(4, "big"))
    low = number & 0xFFFFFF
    notations = [
        str(number), hex(number), f"0{number:o}", ".".join(map(hex, octets)),
        ".".join(f"0{octet:o}" for octet in octets),
        f"{octets[0]}.{low}", f"{octets[0]:#x}.{low}", f"{octets[0]}.{octets[1]}.{low & 0xFFFF}",
        f"[::{IPv4Address(number)}]", f"[2002:{number >> 16:x}:{number & 0xFFFF:x}::1]",
    ]  # fmt: skip
    for notation in notations:
        with pytest.raises(BadInput):
            check_url(f"https://{notation}/")
