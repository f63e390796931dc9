"""What a web request would do: push a message, and read its result."""

from shop import audit, send

handle = send.options(then=audit.message("sent"), unique="order-7").push(
    "a@example.org", subject="your order"
)
print(handle.key, "is new" if handle.is_new else "was there already")
print("returned", handle.get(timeout=30))
