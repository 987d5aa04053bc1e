"""Money: a whole number of minor units (cents) of one ISO 4217 currency. No floats, no conversion."""

from domain.errors import BadInput

_BY_DIGITS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: (
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF "
        "CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ "
        "GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD "
        "MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON "
        "RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS "
        "UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG"
    ),
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
DIGITS = {code: digits for digits, codes in _BY_DIGITS.items() for code in codes.split()}
"""ISO 4217 code → digits of its minor unit."""

LARGEST = 10**15
"""Minor units in one hold, at most: sums of thousands of holds stay within 64 bits."""


def check_money(amount: int | None, currency: str | None) -> None:
    """Both or neither, a positive whole number, a currency of ISO 4217.

    Raises:
        BadInput: one of these does not hold.
    """
    if amount is None and currency is None:
        return
    if amount is None:
        raise BadInput("amount", "is missing beside a currency; give both or neither")
    if currency is None:
        raise BadInput("currency", "is missing beside an amount; give both or neither")
    if not 0 < amount <= LARGEST:
        raise BadInput("amount", f"must lie between 1 and {LARGEST} minor units (cents)")
    if currency not in DIGITS:
        raise BadInput("currency", f"{currency[:8]!r} is no ISO 4217 code; write it like EUR")


def format_money(amount: int, currency: str) -> str:
    """Minor units as people read them: `12.50 EUR`, `1250 JPY`."""
    digits = DIGITS.get(currency, 0)
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    whole, fraction = divmod(amount, 10**digits)
    return f"{sign}{whole:,}" + (f".{fraction:0{digits}d}" if digits else "") + f" {currency}"
