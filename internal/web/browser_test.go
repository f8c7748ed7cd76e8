package web

func closeBrowser() {}
