"""Mail, by SMTP, through the server that the worker's operator names.

The variables are `SMTP_HOST` and `SMTP_PORT`, `SMTP_FROM`, and `SMTP_USER` with `SMTP_PASSWORD` if the server requires
them. A connection is encrypted from the beginning on port 465, and on others as soon as the server offers encryption.
A password is sent unencrypted to this machine only.
"""

import smtplib
import ssl
from collections.abc import Collection, Mapping
from email.message import EmailMessage
from email.utils import make_msgid
from typing import Any

from msgspec import Struct

from callboard.actors.services.action import ActionRefused, Payload, ServiceAction
from callboard.actors.skills.service import ServiceFailed

PORT = 587
ENCRYPTED_PORT = 465
TIMEOUT_S = 30.0

_HERE = ("localhost", "127.0.0.1", "::1")


SEND = "send_email"
"""The one action of mail."""


class Mail(Struct, frozen=True):
    """A mail to send; ``html`` is in addition to the text, or in its place."""

    to: str
    subject: str
    text: str
    html: str = ""
    cc: str = ""
    bcc: str = ""
    reply_to: str = ""


def act(action: ServiceAction) -> Payload:
    """Send a mail.

    :raises ActionRefused, ServiceFailed: if it fails
    """
    if action.name not in (SEND, ""):
        raise action.unsupported_action(SEND)
    if not _sender(action.env):
        raise ActionRefused("missing_oauth_token", "no mail server is configured", f"{_UNSET}SMTP_HOST and SMTP_FROM")
    html = action.text("html", "body_html")
    text = action.text("text") or ("" if html else action.text("message", "body"))
    if not text and isinstance(action.input, str):
        text = action.input
    if not (text or html):
        raise action.lacking("text")
    mail = Mail(
        _addresses(action.require("to", "recipient", "recipients", "email")),
        action.text("subject"),
        text,
        html,
        cc=_addresses(action.first_given("cc")),
        bcc=_addresses(action.first_given("bcc")),
        reply_to=_addresses(action.first_given("reply_to")),
    )
    sent = send_mail(action.env, mail, action.idempotency_key)
    return {"success": True, "message_id": sent.message_id, "refused": sent.refused, "error_message": ""}


class SentMail(Struct, frozen=True):
    """A mail that was sent: its id, which is the same when it is sent again, and the refused addresses."""

    message_id: str
    refused: list[str]


def send_mail(env: Mapping[str, str], mail: Mail, idempotency_key: str) -> SentMail:
    """Send a mail.

    :raises ServiceFailed: if the server refuses it for all recipients
    """
    host, sender, password = env.get("SMTP_HOST", "").strip(), _sender(env), env.get("SMTP_PASSWORD", "")
    if not sender:
        raise ServiceFailed(f"Mail is not configured: {_UNSET}SMTP_HOST and SMTP_FROM")
    message = _message(sender, mail, idempotency_key)
    try:
        refused = _deliver(host, env, message, password)
    except (smtplib.SMTPException, OSError, UnicodeError) as error:
        told = f"The mail server {host} does not take the mail: {type(error).__name__}: {error}"
        status = error.smtp_code if isinstance(error, smtplib.SMTPResponseException) else 0
        raise ServiceFailed(told.replace(password, "[secret]") if password else told, status) from error
    return SentMail(str(message["Message-ID"]), sorted(refused))  # the header object itself cannot be recorded


_UNSET = "the operator of the worker has to set "


def _sender(env: Mapping[str, str]) -> str:
    """Return the sender of mail; empty if mail cannot be sent."""
    sender = env.get("SMTP_FROM", "").strip() or env.get("SMTP_USER", "").strip()
    return sender if env.get("SMTP_HOST", "").strip() else ""


def _message(sender: str, mail: Mail, idempotency_key: str) -> EmailMessage:
    message = EmailMessage()
    headers = {"Cc": mail.cc, "Bcc": mail.bcc, "Reply-To": mail.reply_to}
    try:
        message["From"], message["To"], message["Subject"] = sender, mail.to, " ".join(mail.subject.split())
        for name, value in headers.items():
            if value:
                message[name] = value
    except ValueError as error:
        raise ServiceFailed(f"The address or the subject does not fit into a mail: {error}") from error
    domain = sender.rpartition("@")[2].strip(" >") or "localhost"
    message["Message-ID"] = f"<{idempotency_key[:32]}@{domain}>" if idempotency_key else make_msgid(domain=domain)
    if mail.text or not mail.html:
        message.set_content(mail.text)
        if mail.html:
            message.add_alternative(mail.html, subtype="html")
    else:
        message.set_content(mail.html, subtype="html")
    return message


def _addresses(given: Any) -> str:
    """Return addresses as a mail has them; a list becomes one line."""
    return ", ".join(map(str, given)) if isinstance(given, list) else str(given or "")


def _deliver(host: str, env: Mapping[str, str], message: EmailMessage, password: str) -> Collection[str]:
    """Send a mail, and return the addresses that the server refuses if it accepts others."""
    given = env.get("SMTP_PORT", "").strip()
    port = int(given) if given.isdigit() else PORT
    trusted = ssl.create_default_context()
    opened: smtplib.SMTP
    if port == ENCRYPTED_PORT:
        opened = smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_S, context=trusted)
    else:
        opened = smtplib.SMTP(host, port, timeout=TIMEOUT_S)
    with opened as server:
        server.ehlo()
        encrypted = port == ENCRYPTED_PORT
        if not encrypted and server.has_extn("starttls"):
            server.starttls(context=trusted)
            server.ehlo()
            encrypted = True
        if password:
            if not encrypted and host not in _HERE:
                raise smtplib.SMTPException("it offers no encryption, and a password is not sent unencrypted")
            server.login(env.get("SMTP_USER", ""), password)
        return server.send_message(message)
