// The page: what is drawn at an address.
document.body.append(document.querySelector('meta[name="callboard-tenant"]').content)
