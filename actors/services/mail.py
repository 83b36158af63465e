"""Mail, by SMTP, through the server that the worker's operator names.

`SMTP_HOST` and `SMTP_PORT`, `SMTP_FROM`, and `SMTP_USER` with `SMTP_PASSWORD` if the server wants them. A connection is
encrypted from the beginning on port 465, and elsewhere as soon as the server offers it; a password goes nowhere
unencrypted but to this machine.
"""

import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import make_msgid

from callboard.actors.skills.service import ServiceFailed

PORT = 587
ENCRYPTED_PORT = 465
TIMEOUT_S = 30.0

_HERE = ("localhost", "127.0.0.1", "::1")


def send_mail(env: Mapping[str, str], to: str, subject: str, text: str, idempotency_key: str) -> str:
    """Send a mail, and return its id, which is the same whenever it is sent again.

    :raises ServiceFailed: if the server does not take it
    """
    host = env.get("SMTP_HOST", "").strip()
    sender = env.get("SMTP_FROM", "").strip() or env.get("SMTP_USER", "").strip()
    if not host or not sender:
        raise ServiceFailed("Mail is not configured: whoever runs the worker has to set SMTP_HOST and SMTP_FROM")
    message = EmailMessage()
    try:
        message["From"], message["To"], message["Subject"] = sender, to, " ".join(subject.split())
    except ValueError as error:
        raise ServiceFailed(f"The address or the subject does not fit into a mail: {error}") from error
    domain = sender.rpartition("@")[2].strip(" >") or "localhost"
    message["Message-ID"] = f"<{idempotency_key[:32]}@{domain}>" if idempotency_key else make_msgid(domain=domain)
    message.set_content(text)
    password = env.get("SMTP_PASSWORD", "")
    try:
        _deliver(host, env, message, password)
    except (smtplib.SMTPException, OSError) as error:
        told = f"The mail server {host} does not take the mail: {type(error).__name__}: {error}"
        raise ServiceFailed(told.replace(password, "[secret]") if password else told) from error
    return message["Message-ID"]


def _deliver(host: str, env: Mapping[str, str], message: EmailMessage, password: str) -> None:
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
                raise smtplib.SMTPException("it offers no encryption, and a password is not sent without")
            server.login(env.get("SMTP_USER", ""), password)
        server.send_message(message)
