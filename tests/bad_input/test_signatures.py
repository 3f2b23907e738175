"""Requests that are not well signed get AWS's code, and the origin never hears of them."""

import datetime

import pytest

from harness import sigv4
from harness.servers import Credentials
from harness.wire import with_query


def minutes(count):
    return datetime.timedelta(minutes=count)


def put(wire, bucket, **options):
    answer = wire.signed("PUT", f"/{bucket}/k", body=b"x", **options)
    return answer.status, answer.code


def test_a_wrong_secret(wire, never_forwarded):
    wrong = Credentials(wire.credentials.access_key, "not the secret")
    scope = wire.scope(credentials=wrong)
    assert put(wire, never_forwarded, scope=scope) == (403, "SignatureDoesNotMatch")


# versitygw answers with a code of its own.
@pytest.mark.targets("fs", "origin")
def test_an_unknown_key(wire, never_forwarded):
    scope = wire.scope(credentials=Credentials("NOSUCHKEY0000000000", "secret"))
    assert put(wire, never_forwarded, scope=scope) == (403, "InvalidAccessKeyId")


@pytest.mark.parametrize("skew", [-16, 16])
def test_a_clock_sixteen_minutes_off(wire, never_forwarded, skew):
    scope = wire.scope(moment=sigv4.utc_now() + minutes(skew))
    assert put(wire, never_forwarded, scope=scope) == (403, "RequestTimeTooSkewed")


@pytest.mark.parametrize("skew", [-14, 14])
def test_a_clock_fourteen_minutes_off_is_fine(wire, bucket, skew):
    scope = wire.scope(moment=sigv4.utc_now() + minutes(skew))
    assert put(wire, bucket, scope=scope) == (200, None)


# versitygw takes an x-amz header that nobody signed.
@pytest.mark.targets("fs", "origin")
def test_an_amz_header_that_is_not_signed(wire, never_forwarded):
    got = put(
        wire, never_forwarded, headers={"x-amz-meta-sneaked": "in"},
        unsigned=("x-amz-meta-sneaked",),
    )
    assert got == (403, "AccessDenied")


@pytest.mark.targets("fs", "origin")
def test_an_amz_header_added_after_signing(wire, never_forwarded):
    path = f"/{never_forwarded}/k"
    headers = sigv4.sign_headers(wire.scope(), "PUT", wire.host, path)
    headers["x-amz-copy-source"] = f"/{never_forwarded}/secret"
    answer = wire.plain("PUT", path, headers)
    assert (answer.status, answer.code) == (403, "AccessDenied")


def test_a_signed_header_that_is_absent(wire, never_forwarded):
    path = f"/{never_forwarded}/k"
    sent = {"x-amz-meta-a": "1"}
    headers = sigv4.sign_headers(wire.scope(), "PUT", wire.host, path, headers=sent)
    del headers["x-amz-meta-a"]
    answer = wire.plain("PUT", path, headers)
    assert answer.status in (400, 403), answer.body
    assert answer.code in ("SignatureDoesNotMatch", "AccessDenied", "AuthorizationHeaderMalformed")


def test_a_host_that_is_not_signed(wire, never_forwarded):
    got = put(wire, never_forwarded, unsigned=("host",))
    assert got[0] in (400, 403), got


@pytest.mark.parametrize(
    "change",
    ["method", "path", "query", "header", "host"],
)
def test_anything_changed_after_signing(wire, never_forwarded, change):
    path = f"/{never_forwarded}/k"
    headers = sigv4.sign_headers(
        wire.scope(), "PUT", wire.host, path, headers={"x-amz-meta-a": "1"}
    )
    method = "DELETE" if change == "method" else "PUT"
    target = path + "2" if change == "path" else path
    target += "?tagging" if change == "query" else ""
    headers |= {"x-amz-meta-a": "2"} if change == "header" else {}
    headers |= {"host": "elsewhere"} if change == "host" else {}
    answer = wire.plain(method, target, headers)
    assert (answer.status, answer.code) == (403, "SignatureDoesNotMatch")


def test_no_signature_at_all(wire, never_forwarded):
    answer = wire.plain("PUT", f"/{never_forwarded}/k", body=b"x")
    assert (answer.status, answer.code) == (403, "AccessDenied")


CREDENTIAL = "AK/20240101/us-east-1/s3/aws4_request"
MALFORMED = {
    "empty": "",
    "scheme only": "AWS4-HMAC-SHA256",
    "no commas": "AWS4-HMAC-SHA256 nonsense",
    "no signature": f"AWS4-HMAC-SHA256 Credential={CREDENTIAL}, SignedHeaders=host",
    "no signed headers": f"AWS4-HMAC-SHA256 Credential={CREDENTIAL}, Signature=00",
    "no credential": "AWS4-HMAC-SHA256 SignedHeaders=host, Signature=00",
    "short scope": "AWS4-HMAC-SHA256 Credential=AK/20240101/s3, SignedHeaders=host, Signature=00",
    "bad terminator": "AWS4-HMAC-SHA256 Credential=AK/20240101/us-east-1/s3/aws5_request, "
    "SignedHeaders=host, Signature=00",
    "other scheme": "Basic dXNlcjpwYXNz",
    "other hash": f"AWS4-HMAC-SHA512 Credential={CREDENTIAL}, SignedHeaders=host, Signature=00",
    "equals signs": "AWS4-HMAC-SHA256 Credential===,=,=",
    "signature version 2": "AWS AKIDEXAMPLE:c2lnbmF0dXJl",
}


@pytest.mark.parametrize("value", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_authorization_header(wire, never_forwarded, value):
    headers = {
        "authorization": value,
        "x-amz-date": sigv4.amz_date(sigv4.utc_now()),
        "x-amz-content-sha256": sigv4.UNSIGNED,
    }
    answer = wire.plain("PUT", f"/{never_forwarded}/k", headers, b"x")
    assert answer.status in (400, 403), answer.body
    assert answer.code in (
        "AuthorizationHeaderMalformed", "InvalidArgument", "AccessDenied", "InvalidRequest",
        "MissingSecurityHeader",
    )


@pytest.mark.parametrize("wrong", [{"region": "mars-1"}, {"service": "ec2"}])
def test_a_scope_for_another_place(wire, never_forwarded, wrong):
    got = put(wire, never_forwarded, scope=wire.scope(**wrong))
    assert got == (400, "AuthorizationHeaderMalformed")


def test_a_scope_of_another_day(wire, never_forwarded):
    yesterday = wire.scope(moment=sigv4.utc_now() - minutes(24 * 60))
    headers = {"x-amz-date": sigv4.amz_date(sigv4.utc_now())}
    got = put(wire, never_forwarded, scope=yesterday, headers=headers)
    assert got[0] in (400, 403), got
    assert got[1] in ("AuthorizationHeaderMalformed", "SignatureDoesNotMatch")


def test_no_date(wire, never_forwarded):
    path = f"/{never_forwarded}/k"
    headers = sigv4.sign_headers(wire.scope(), "PUT", wire.host, path)
    del headers["x-amz-date"]
    answer = wire.plain("PUT", path, headers)
    assert answer.status in (400, 403), answer.body


def test_two_authorizations_at_once(wire, never_forwarded):
    path = f"/{never_forwarded}/k"
    target = sigv4.presign(wire.scope(), "PUT", wire.host, path)
    headers = sigv4.sign_headers(wire.scope(), "PUT", wire.host, path)
    answer = wire.plain("PUT", target, headers)
    assert answer.status in (400, 403), answer.body


class TestPresigned:
    """The same care for URLs."""

    def get(self, wire, bucket, **options):
        scope = options.pop("scope", None) or wire.scope()
        target = sigv4.presign(scope, "PUT", wire.host, f"/{bucket}/k", **options)
        answer = wire.plain("PUT", target, body=b"x")
        return answer.status, answer.code

    def test_one_that_expired(self, wire, never_forwarded):
        scope = wire.scope(moment=sigv4.utc_now() - minutes(2))
        got = self.get(wire, never_forwarded, scope=scope, expires_seconds=60)
        assert got == (403, "AccessDenied")

    def test_one_that_lives_longer_than_seven_days(self, wire, never_forwarded):
        got = self.get(wire, never_forwarded, expires_seconds=7 * 86400 + 1)
        assert got == (400, "AuthorizationQueryParametersError")

    @pytest.mark.parametrize("seconds", [-1, "abc"])
    def test_one_with_a_senseless_lifetime(self, wire, never_forwarded, seconds):
        got = self.get(wire, never_forwarded, expires_seconds=seconds)
        assert got == (400, "AuthorizationQueryParametersError")

    # versitygw takes it.
    @pytest.mark.targets("fs", "origin")
    def test_one_from_the_future(self, wire, never_forwarded):
        scope = wire.scope(moment=sigv4.utc_now() + minutes(20))
        got = self.get(wire, never_forwarded, scope=scope)
        assert got[0] == 403, got

    @pytest.mark.parametrize(
        "name",
        ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"],
    )
    def test_one_with_a_part_left_out(self, wire, never_forwarded, name):
        target = sigv4.presign(wire.scope(), "PUT", wire.host, f"/{never_forwarded}/k")
        path, _, query = target.partition("?")
        kept = [part for part in query.split("&") if not part.startswith(f"X-Amz-{name}=")]
        assert len(kept) == 5
        answer = wire.plain("PUT", path + "?" + "&".join(kept), body=b"x")
        assert answer.status in (400, 403), answer.body

    def test_one_whose_query_was_extended(self, wire, never_forwarded):
        target = sigv4.presign(wire.scope(), "PUT", wire.host, f"/{never_forwarded}/k")
        answer = wire.plain("PUT", target + "&tagging", body=b"x")
        assert (answer.status, answer.code) == (403, "SignatureDoesNotMatch")

    def test_one_with_a_signature_of_the_wrong_length(self, wire, never_forwarded):
        target = sigv4.presign(wire.scope(), "PUT", wire.host, f"/{never_forwarded}/k")
        answer = wire.plain("PUT", target[:-2], body=b"x")
        assert (answer.status, answer.code) == (403, "SignatureDoesNotMatch")

    def test_query_order_does_not_matter(self, wire, s3, bucket):
        s3.put_object(Bucket=bucket, Key="k", Body=b"x")
        target = sigv4.presign(wire.scope(), "GET", wire.host, f"/{bucket}/k")
        path, _, query = target.partition("?")
        turned = path + "?" + "&".join(reversed(query.split("&")))
        assert wire.plain("GET", turned).body == b"x"


def test_a_signature_in_other_case_and_spacing(wire, s3, bucket):
    """What AWS's own SDKs vary: no space after a comma."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    headers = sigv4.sign_headers(wire.scope(), "GET", wire.host, f"/{bucket}/k")
    headers["authorization"] = headers["authorization"].replace(", ", ",")
    assert wire.plain("GET", f"/{bucket}/k", headers).body == b"x"


def test_a_query_value_that_needs_encoding(wire, bucket):
    query = [("list-type", "2"), ("prefix", "a b+c/ü=&%")]
    answer = wire.signed("GET", f"/{bucket}", query)
    assert answer.status == 200, (with_query("", query), answer.body)
